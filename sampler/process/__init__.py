"""Starting, watching and ending processes, and the machine's limits. Knows nothing of workers."""

CALLER = "FASTRL_CALLER"
"""Environment variable with the caller's process id, for the fork server: by the time it could ask
for its parent, the caller may have been killed."""
