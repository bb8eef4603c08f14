"""Shared memory: the arena and everything in it. Imports only errors and processes."""
