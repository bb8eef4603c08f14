"""Policy workers: the processes that batch inference and own the recurrent state."""
