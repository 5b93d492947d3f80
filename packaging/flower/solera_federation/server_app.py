"""What runs on the server is installed there."""

from solera.federation.flower import server_app as installed

app = installed
