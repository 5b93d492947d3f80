"""The web transport: devices pull by signed HTTPS requests, a database holds what is under way."""
