"""The guard between the network and Flower's SuperLink."""
