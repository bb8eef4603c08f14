"""Commands: argument parsing, run folders and display. No algorithms live here."""

import logging

# without a run folder, records go nowhere: what a user must read is printed, not logged
logging.getLogger(__name__).addHandler(logging.NullHandler())
