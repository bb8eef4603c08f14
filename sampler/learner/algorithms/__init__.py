"""One file per learning algorithm, and what they share."""
