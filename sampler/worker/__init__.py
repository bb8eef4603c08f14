"""What both kinds of worker are given, and what each does around its work."""
