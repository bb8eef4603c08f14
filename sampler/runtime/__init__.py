"""Putting a sampler together and running its workers, in processes or in one."""
