"""Targets, losses, replay and normalisation, and one file per learning algorithm."""
