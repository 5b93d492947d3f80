"""What operators run: programs, control, metrics, the demo."""
