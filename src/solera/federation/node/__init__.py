"""A node: one device that answers what the server asks."""
