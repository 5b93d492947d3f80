"""A federation over a network: what nodes and server do, the transports that carry it, its commands."""
