"""Inference attacks: find out from uploads which items clients interacted with."""
