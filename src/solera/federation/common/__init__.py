"""What server and nodes share: messages, uploads as arrays, addresses, keys."""
