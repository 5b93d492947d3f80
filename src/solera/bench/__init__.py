"""Measurements of Solera's own speed."""
