"""A federation over a network: what nodes and server do, its transports, the commands around."""
