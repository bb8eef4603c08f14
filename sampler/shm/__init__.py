"""Shared memory: the arena and everything that lives in it. Imports only errors and processes."""
