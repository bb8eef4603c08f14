"""Shared memory: the arena and everything that lives in it. Imports nothing else of the library."""
