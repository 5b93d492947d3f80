"""Data sets: one common type, loaders for the publishers' formats, splits and negative sampling."""
