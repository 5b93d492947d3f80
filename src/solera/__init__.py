"""Personalized federated recommendation."""
