"""What Solera itself costs: its engines, methods, evaluation, federation and secure sums."""
