"""The core vocabulary: leaves and their homes, methods and their five parts, rounds, randomness, errors."""
