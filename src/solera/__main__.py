"""`python -m solera`."""

from solera.cli import main

main()
