"""Reading a long record file from any moment on, without reading what lies before it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from torchtop.session.records import Record
from torchtop.session.tail import Tail

_NEAR_BYTES = 64 << 10
"""A search by halves ends here: what is left is read in order."""

_EDGE_BYTES = 64 << 10
_READ_BYTES = 256 << 10
_LINE_BYTES = 1 << 20
_STAMP = re.compile(rb'"mono_ns": ?(\d+)')


class TimedFile:
    """One file whose records are in the order of their times, as every writer writes them.

    Args:
        path: the file.
        without: kinds of records to pass over, as in `Tail`.

    Attributes:
        first_ns: when its first record was written; None where it has none.
        last_ns: when its last one was.
        head: what stands at its start: the header and the first facts.
        newer_schema: whether it was written by a newer torchtop than this one.
    """

    def __init__(self, path: Path, without: tuple[str, ...] = ()) -> None:
        self.path = path
        self._without = without
        start = self._tail()
        first = start.poll(limit=_EDGE_BYTES)
        self.head = [r for r in first if r["kind"] in ("header", "facts")]
        self.newer_schema = start.newer_schema
        self.first_ns = next(_stamps(first), None)
        end = Tail(path, last_bytes=_EDGE_BYTES)
        self.last_ns = max(_stamps(end.poll()), default=None)
        self._cursor = self._tail()
        self._waiting: deque[Record] = deque()
        self._time = 0

    def _tail(self, offset: int = 0) -> Tail:
        return Tail(self.path, without=self._without, offset=offset)

    @property
    def bad(self) -> int:
        """Lines that could not be read, since the last `start`."""
        return self._cursor.bad

    def start(self, mono_ns: int) -> None:
        """Go to the first record that is not older than a moment."""
        self._cursor = self._tail(self._offset_of(mono_ns))
        self._waiting.clear()
        self._time = 0
        while self._fill() and self._stamp_of(self._waiting[0]) < mono_ns:
            self._waiting.popleft()

    def take(self, until_ns: int) -> Iterator[Record]:
        """The records up to a moment, from where the last call has stopped."""
        while self._fill() and self._stamp_of(self._waiting[0]) <= until_ns:
            self._time = self._stamp_of(self._waiting[0])
            yield self._waiting.popleft()

    def _fill(self) -> bool:
        """Have a record at hand; False at the end of the file."""
        read_to = -1
        while not self._waiting and read_to != self._cursor.offset:
            read_to = self._cursor.offset
            self._waiting.extend(self._cursor.poll(limit=_READ_BYTES))
        return bool(self._waiting)

    def _stamp_of(self, record: Record) -> int:
        """A record's time; that of the one before where it has none."""
        return next(_stamps([record]), self._time)

    def _offset_of(self, mono_ns: int) -> int:
        """A place before the first record of a moment, and not far before it."""
        try:
            with self.path.open("rb") as file:
                low, high = 0, file.seek(0, 2)
                while high - low > _NEAR_BYTES:
                    middle = (low + high) // 2
                    stamp = _stamp_after(file, middle, high)
                    if stamp is not None and stamp < mono_ns:
                        low = middle
                    else:
                        high = middle
                if low == 0:
                    return 0
                file.seek(low)
                file.readline(_LINE_BYTES)
                return file.tell()
        except OSError:
            return 0


def _stamps(records: list[Record]) -> Iterator[int]:
    """The times of records."""
    told = (r.get("mono_ns") for r in records if not is_of_later(r))
    return (stamp for stamp in told if isinstance(stamp, int))


def is_of_later(record: Record) -> bool:
    """Whether a record may be of another time than the run: verdicts can be made again."""
    return record["kind"] == "header" and record.get("role") == "analyst"


def _stamp_after(file: BinaryIO, offset: int, end: int) -> int | None:
    """The time of the first whole line after a place; None where no line before `end` tells one."""
    file.seek(offset)
    file.readline(_LINE_BYTES)
    while file.tell() < end:
        if found := _STAMP.search(file.readline(_LINE_BYTES)):
            return int(found[1])
    return None
