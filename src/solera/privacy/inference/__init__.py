"""Inference attacks: who interacted with what, from uploads."""
