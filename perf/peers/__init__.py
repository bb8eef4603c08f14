"""The same work side by side: fastrl and other systems (`python -m perf.peers`)."""
