"""What a federation gives away, and how to keep it."""
