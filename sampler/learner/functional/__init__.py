"""What learners compute: targets, losses, normalisation, schedules, optimisers."""
