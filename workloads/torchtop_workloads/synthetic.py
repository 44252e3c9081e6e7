"""Data sets that are made up where the real files are absent: once, whole, and marked as such.

Nothing is downloaded. What is made lies in a folder of its own, in the format of the real files, so
that the loading path is the real one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchtop_workloads.ending import fail

MARKER = "torchtop-synthetic.json"
"""In a folder of made-up files: the real set never has it."""

SPARE_BYTES = 256 << 20
"""What shall be left on the disk of a data set, for others."""

_TELL_EVERY_S = 2.0

Write = Callable[[Path], None]


def default_dir() -> Path:
    """Where data sets lie: ``$XDG_CACHE_HOME/torchtop/data``, in ``~/.cache`` by default."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "torchtop" / "data"


def make_once(place: Path, name: str, size_bytes: int, write: Write) -> Path:
    """The folder ``place/name``, made by whichever rank of this host comes first.

    Args:
        place: where it shall lie; made where it is absent.
        name: of the folder; there is either all of it or nothing.
        size_bytes: what it will take on the disk, about.
        write: fills an empty folder, `MARKER` included.

    Raises:
        SystemExit: with one line, when it cannot be made.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _alone(place):
            if not (place / name / MARKER).is_file():
                _check_room(place, size_bytes)
                write_whole(place, name, write)
    except OSError as error:
        why = error.strerror or error
        fail(f"data: cannot write synthetic images to {place}: {why}: give another --data-dir")
    return place / name


def write_whole(place: Path, name: str, write: Write) -> None:
    """Fill a folder under another name, and give it its own when it is complete.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=place))
    try:
        write(scratch)
        scratch.chmod(0o755)
        try:
            scratch.rename(place / name)
        except OSError:
            if not (place / name / MARKER).is_file():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Let the ranks of this host, and of other runs, in one by one: the first makes the files."""
    with (place / ".lock").open("w") as lock:
        # On a file system without locks all make the files, and one rename wins.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in place.glob(".making-*"):  # by a process that was killed: it had the lock
                shutil.rmtree(left, ignore_errors=True)
        yield


def _check_room(place: Path, size_bytes: int) -> None:
    free = shutil.disk_usage(place).free
    if free < size_bytes + SPARE_BYTES:
        needed = (size_bytes + SPARE_BYTES) >> 20
        fail(
            f"data: {needed} MiB are needed in {place} and {free >> 20} MiB are free: make room, "
            "give another --data-dir, or a smaller --synthetic-size"
        )


class Progress:
    """Tells now and then how far the making of a data set is.

    Args:
        what: is made, in words.
        total: how many.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._told_s = time.monotonic()

    def done(self, count: int) -> None:
        """So many are made."""
        if time.monotonic() - self._told_s >= _TELL_EVERY_S:
            self._told_s = time.monotonic()
            print(f"data: making {self._what}: {count} of {self._total}", flush=True)
