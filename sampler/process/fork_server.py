"""Setup and clean-up in the fork server, which loads this module. No other process uses it.

multiprocessing keeps the fork server's socket in a directory under /tmp, which the caller removes
when it exits. A caller that is killed cannot do so, but the fork server ends after the caller and
all workers, and removes the directory then.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import shutil
import signal
import sys
import time
from multiprocessing import forkserver

from sampler.process import CALLER

CALLER_TIMEOUT = 1.0  # seconds from the end of a caller's descriptors to the end of its process


def _remove_socket(server: int, caller: int) -> None:
    """Remove the directory of the socket, unless the caller is still there to do so."""
    address = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]
    if os.getpid() != server or not address:
        return
    deadline = time.monotonic() + CALLER_TIMEOUT
    while os.getppid() == caller and time.monotonic() < deadline:
        time.sleep(0.01)
    if os.getppid() != caller:
        shutil.rmtree(os.path.dirname(address), ignore_errors=True)


# A process group of its own: signals that a terminal or `timeout` sends to the caller's group must
# not reach the fork server.
os.setpgid(0, 0)
_usual = signal.signal(signal.SIGINT, signal.SIG_IGN)  # discards a pending one
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # see `launch.start`
signal.signal(signal.SIGINT, _usual)
if sys.stderr is not None:  # the caller's may be closed
    faulthandler.register(signal.SIGUSR1)
atexit.register(_remove_socket, os.getpid(), int(os.environ.pop(CALLER, os.getppid())))
