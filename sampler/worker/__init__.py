"""What both kinds of worker are given, and how their processes run."""
