"""The papers' figures: what happens in single rounds, and the item tables of single users."""
