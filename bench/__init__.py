"""Benchmarks: each package runs with `python -m bench.<name>` and prints ratios."""
