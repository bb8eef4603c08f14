"""Targets, losses, replay and normalization, and one file per learning algorithm."""
