"""Who watches a session: a lock that viewers share, so that a detached run can be told from others.

The kernel drops a lock with its holder, however that one ends: a viewer that was killed or whose
line broke does not count. Nothing that trains looks at it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from torchtop.session.locks import is_held
from torchtop.session.paths import SessionPaths, is_running


@contextmanager
def watching(paths: SessionPaths) -> Iterator[None]:
    """Count as a viewer of a session while the block runs.

    A session that is over is not touched, and one whose directory cannot be written is watched
    without a mark: that costs it nothing but the word "detached" in a list.
    """
    fd = -1
    try:
        if is_running(paths):
            flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(paths.viewers, flags, 0o600)
            fcntl.flock(fd, fcntl.LOCK_SH)
    except OSError:
        pass
    try:
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def is_watched(paths: SessionPaths) -> bool:
    """Whether a viewer watches a session at this moment."""
    # Viewers share the lock: only one that nobody shares is in the way of theirs. NFS grants it
    # to a file that is open for writing alone.
    return is_held(paths.viewers, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, fcntl.LOCK_EX)
