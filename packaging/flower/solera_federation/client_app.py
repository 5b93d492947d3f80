"""What runs on a node is installed there."""

from solera.federation.flower import client_app as installed

app = installed
