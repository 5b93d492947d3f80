"""Models of bundles in numpy: whoever has a history is served without torch."""
