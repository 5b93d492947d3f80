"""What runs on the server is installed there."""

from solera.deploy.flower import server_app as installed

app = installed
