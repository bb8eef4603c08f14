"""What learners compute: targets, losses, normalization, schedules, optimisers."""
