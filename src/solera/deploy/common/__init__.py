"""What server and nodes share: messages, uploads as arrays, keys, and Flower's programs."""
