"""How cost grows with users, items and ranks: measured points, a cost model, and its predictions."""
