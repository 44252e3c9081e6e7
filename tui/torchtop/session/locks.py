"""Who lives: a lock is dropped by the kernel with its holder, however that one ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def is_locked(lock: Path) -> bool:
    """Whether a living process holds the lock. The kernel drops it however the holder ends."""
    return is_held(lock, os.O_RDONLY | os.O_CLOEXEC, fcntl.LOCK_SH)


def is_held(file: Path, flags: int, kind: int) -> bool:
    """Whether a lock of this kind cannot be had on a file, which is opened with these flags."""
    try:
        fd = os.open(file, flags)
    except OSError:
        return False
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
