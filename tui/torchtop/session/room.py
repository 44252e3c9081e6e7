"""Room on the disk: leaving some to others, and having some for sure.

Stdlib only and importable on Python 3.8: this module is staged into the training process.
"""

from __future__ import annotations

import contextlib
import os
import time

RESERVE_BYTES = 64 << 20
"""What telemetry leaves free on the disk: logs and checkpoints come first."""

_LOOK_EVERY_NS = 5_000_000_000
_FALLOC_FL_KEEP_SIZE = 1


class Reserve:
    """What the writer of a file leaves free on its disk.

    Args:
        fd: the open file.
        size: bytes that stay free.
    """

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._touched = False
        self._look_ns = 0

    def is_touched(self) -> bool:
        """Whether less than that is free, as it was at most five seconds ago.

        Raises:
            OSError: the file is closed.
        """
        now_ns = time.monotonic_ns()
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + _LOOK_EVERY_NS
            disk = os.fstatvfs(self._fd)
            self._touched = disk.f_bavail * disk.f_frsize < self._size
        return self._touched


def set_aside(fd: int, size: int) -> None:
    """Have blocks for the first part of a file, where the file system can, without growing it."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError, ValueError):
        ctypes.CDLL(None).fallocate(
            fd, _FALLOC_FL_KEEP_SIZE, ctypes.c_longlong(0), ctypes.c_longlong(size)
        )


def give_back(fd: int) -> None:
    """Let go of blocks that were set aside and not needed."""
    with contextlib.suppress(OSError):
        os.ftruncate(fd, os.fstat(fd).st_size)
