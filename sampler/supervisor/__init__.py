"""Starting, watching, restarting and stopping the worker processes."""

CALLER = "FASTRL_CALLER"
"""Variable that tells a fork server the caller's process id: by the time that it looks, the caller
may have been killed."""
