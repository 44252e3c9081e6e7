"""What is left to do when the terminal has gone. Loads nothing of the screen."""

from __future__ import annotations

import errno
import os
import sys

GONE = frozenset({errno.EIO, errno.EPIPE})
"""What a write to a terminal or a pipe fails with when nobody is at the other end any more."""


def silence_if_gone() -> None:
    """Where the terminal has gone, send what is still to be written nowhere.

    Python would else fail to write it at the end of the process, and exit with status 120.
    """
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            silence()
            return


def silence() -> None:
    """Send whatever this process still writes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(nowhere, fd)
    os.close(nowhere)
