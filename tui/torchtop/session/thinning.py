"""Old records made fewer, in the file that they are in, while it is written.

Readers of a file of records hold their place in it by bytes, so none may move. What is given up is
given back to the file system and reads as zero bytes, as one line that begins with `GIVEN_BACK`.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchtop.session.records import GIVEN_BACK, Record
from torchtop.session.values import number

_SECOND_NS = 1_000_000_000

WHOLE_NS = 2 * 3600 * _SECOND_NS
"""Own choice: for so long all is kept: 20 MB of analyses of two ranks, 40 MB of eight."""

SPARSE_NS = 20 * _SECOND_NS
"""Own choice: of what is older so often one is. Each takes one or two blocks of the disk, 30 MB a
day, and a minute of the history has three behind it. A report of two hours has a point each 30 s.
"""

_LEAST_BYTES = 8192
"""Less than two blocks are not worth it."""

# fallocate(2): the blocks of a part of a file are given back, and its size stays as it is.
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)

Told = Mapping[Hashable, Hashable]
"""What a record says that must not be missed: by what it is said of."""


@dataclass(frozen=True, slots=True)
class _Written:
    start: int
    end: int
    mono_ns: int
    told: Told
    stands: bool


class Thinning:
    """Keeps one record in a while of those that are old, and all that told something new.

    Args:
        path: the file; nobody else writes it.
        whole_ns: the age from which on records may go.
        sparse_ns: how far apart those are that stay.
    """

    def __init__(self, path: Path, whole_ns: int = WHOLE_NS, sparse_ns: int = SPARSE_NS) -> None:
        self._path = path
        self._whole_ns, self._sparse_ns = whole_ns, sparse_ns
        self._young: deque[_Written] = deque()
        self._kept: _Written | None = None
        self._last: _Written | None = None
        self._changed_ns: dict[tuple[Hashable, ...], int] = {}
        self._can = True

    def wrote(self, start: int, end: int, mono_ns: int, told: Told, *, stands: bool = True) -> None:
        """Note what was written at these bytes, and give up what has become old.

        Args:
            start: where it begins in the file.
            end: where the next one will.
            mono_ns: its time.
            told: what it says that must not be missed. A record that says another thing than the
                one before is kept, unless just this has changed in just this way a moment ago.
            stands: whether it may be the one that is kept in a while.

        Raises:
            OSError: the file cannot be written any more.
        """
        if not self._can:
            return
        before = self._young[-1].told if self._young else {}
        told = before if told == before else told  # one for all: they are thousands
        self._young.append(_Written(start, end, mono_ns, told, stands))
        while self._young and self._young[0].mono_ns < mono_ns - self._whole_ns:
            self._age(self._young.popleft())

    def _age(self, record: _Written) -> None:
        kept, last = self._kept, self._last
        self._last = record
        if kept is None or last is None:
            self._kept = record
            return
        is_new = record.told != last.told and self._is_new(last.told, record)
        is_due = record.stands and record.mono_ns - kept.mono_ns >= self._sparse_ns
        if is_new or is_due:
            self._give_back(kept.end, record.start)
            self._kept = record

    def _is_new(self, before: Told, record: _Written) -> bool:
        """Whether anything has changed in a way in which it had not changed a moment ago.

        What comes and goes all the time would keep every record; of that any record tells.
        """
        is_new = False
        for key in {**before, **record.told}:
            change = (key, before.get(key), record.told.get(key))
            if change[1] != change[2]:
                seen_ns = self._changed_ns.get(change)
                is_new |= seen_ns is None or record.mono_ns - seen_ns > self._sparse_ns
                self._changed_ns[change] = record.mono_ns
        return is_new

    def _give_back(self, start: int, end: int) -> None:
        """Let go of the lines from `start` on, but for the newline before `end`."""
        if end - start < _LEAST_BYTES:
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            # First, so that whoever reads meanwhile finds no line that cannot be read.
            first = os.pread(fd, len(GIVEN_BACK), start)
            os.pwrite(fd, GIVEN_BACK, start)
            if not punch(self._path, start + len(GIVEN_BACK), end - 1):
                os.pwrite(fd, first, start)
                self._can = False  # this file system cannot
                self._young.clear()
        finally:
            os.close(fd)


class StandIns:
    """Of a sampler's file: for moments whose records were given up, those kept before speak."""

    def __init__(self) -> None:
        self._last: dict[str, Record] = {}
        self._seq = 0
        self._tick_ns = _SECOND_NS

    def before(self, record: Record) -> list[Record]:
        """What stands for the records that are missing before this one, in order of time.

        A time weighs as much as where all are there: one tick each interval, and one listing of
        processes every five.
        """
        kind, seq, mono_ns = record["kind"], record.get("seq", 0), record.get("mono_ns", 0)
        if kind == "header":
            tick_s = number(record.get("tick_s"))
            self._tick_ns = round((tick_s or 1.0) * _SECOND_NS)
        made: list[Record] = []
        tick = self._last.get("tick")
        if tick is not None and seq > self._seq + 1:
            since_ns = tick.get("mono_ns", 0)
            # A longer gap is of a disk that was full or of a file that was cut.
            if mono_ns - since_ns <= 2 * SPARSE_NS:
                for n, at_ns in enumerate(range(since_ns, mono_ns, self._tick_ns)):
                    kinds = ("tick", "processes") if n % 5 == 0 else ("tick",)
                    found = [self._last[k] for k in kinds if n and k in self._last]
                    made += [{**kept, "mono_ns": at_ns} for kept in found]
        if kind in ("tick", "processes"):
            self._last[kind] = record
        self._seq = seq
        return made


def punch(path: Path, start: int, end: int) -> bool:
    """Give the blocks of a part of a file back; False where the file system cannot do that."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        size = ctypes.c_longlong(end - start)
        mode = _KEEP_SIZE | _PUNCH_HOLE
        return not _libc.fallocate(fd, mode, ctypes.c_longlong(start), size)
    finally:
        os.close(fd)
