"""Environments in files of the folder that a command is used in: `--env my_envs:X-v0`."""

from __future__ import annotations

import os
import sys


def look_in_current_folder() -> None:
    """Find modules in the current folder, too, as a script in it would.

    Only after everything that is installed: no file there may take the place of a module of ours,
    or of one that we need. Processes that are started from now on are given the same path.
    """
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
