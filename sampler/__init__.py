"""fastrl: a single-machine, high-throughput asynchronous sampler for reinforcement learning."""
