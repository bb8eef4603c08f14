"""Rollout workers: the processes that step environments and write rows. Never imports torch."""
