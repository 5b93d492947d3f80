"""Poisoning attacks: malicious uploads of clients."""
