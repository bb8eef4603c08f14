"""Starting, watching, restarting and stopping the worker processes."""
