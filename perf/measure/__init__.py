"""What the profilers share: programs that are measured in turn, limits, speeds, tables."""
