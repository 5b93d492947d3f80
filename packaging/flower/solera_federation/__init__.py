"""Solera's app for Flower."""
