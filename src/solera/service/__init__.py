"""A local service for one device: its page in a browser, and a REST interface for other programs."""
