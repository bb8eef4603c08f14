"""Profilers and comparisons, each runnable as `python -m perf.NAME` (see docs/performance.md)."""
