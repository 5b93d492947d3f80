"""Benchmarks: matrices of runs with their records and tables, and Solera's own speed."""
