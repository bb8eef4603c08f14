"""Learning curves of every algorithm (`python -m perf.learning`)."""
