"""Programs that are measured beside the sampler, one per peer; each is run as a script."""
