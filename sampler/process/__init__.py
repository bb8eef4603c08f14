"""Starting, watching and ending processes; what of the machine they may use. Knows no worker."""

CALLER = "FASTRL_CALLER"
"""Variable that tells a fork server the caller's process id: by the time that it looks, the caller
may have been killed."""
