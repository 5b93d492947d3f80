"""The server: the coordinator of rounds, its state and its folder."""
