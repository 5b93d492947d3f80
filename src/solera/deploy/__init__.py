"""A federation over Flower: what nodes and server do, the apps that carry it, the commands around."""
