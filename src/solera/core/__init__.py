"""The vocabulary: leaves and their homes, a method and its five parts, the round, randomness, errors."""
