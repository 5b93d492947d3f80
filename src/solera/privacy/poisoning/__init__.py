"""What clients can do to a federation by what they upload."""
