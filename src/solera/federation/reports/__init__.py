"""Threshold reports over HTTP: the helper's service, the server's, and a device that sends to them."""
