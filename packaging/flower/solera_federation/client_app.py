"""What runs on a node is installed there."""

from solera.deploy.flower import client_app as installed

app = installed
