"""Threshold reports: a server learns the pairs of items that at least T devices have, and no others."""
