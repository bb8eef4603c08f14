"""Commands: argument parsing, run folders and display. No algorithms live here."""
