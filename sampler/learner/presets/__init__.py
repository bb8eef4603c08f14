"""What a run starts with: the defaults of every algorithm for every kind of environment."""
