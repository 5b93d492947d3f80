"""What both sides of a masked round compute alike: terms, vectors, shares of noise, the roster."""
