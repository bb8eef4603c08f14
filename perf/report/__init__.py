"""Measures all of docs/performance.md and writes its tables (`python -m perf.report`)."""
