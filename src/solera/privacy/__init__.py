"""Privacy of a federation: attacks on it, and protection against them."""
