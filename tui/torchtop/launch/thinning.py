"""Old analyses made fewer, in the file that they are in, while it is written.

Readers of a file of records hold their place in it by bytes, so none may move. What is given up is
given back to the file system and reads as zero bytes, as one line that begins with `GIVEN_BACK`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtop.launch.disk import punch
from torchtop.session.records import GIVEN_BACK
from torchtop.session.values import child, children

_SECOND_NS = 1_000_000_000

WHOLE_NS = 2 * 3600 * _SECOND_NS
"""Own choice: for so long every analysis is kept: 20 MB of two ranks, 40 MB of eight."""

SPARSE_NS = 20 * _SECOND_NS
"""Own choice: of older ones so often one is. Each takes one or two blocks of the disk, 30 MB a day,
and a minute of the history has three behind it. A report of two hours has a point each 30 s."""

_LEAST_BYTES = 8192
"""Less than two blocks are not worth it."""


@dataclass(frozen=True)
class _Written:
    start: int
    end: int
    mono_ns: int
    told: tuple[object, ...]


class Thinning:
    """Keeps one analysis in a while of those that are old, and all that told something new.

    Args:
        path: the file; nobody else writes it.
        whole_ns: the age from which on analyses may go.
        sparse_ns: how far apart those are that stay.
    """

    def __init__(self, path: Path, whole_ns: int = WHOLE_NS, sparse_ns: int = SPARSE_NS) -> None:
        self._path = path
        self._whole_ns, self._sparse_ns = whole_ns, sparse_ns
        self._young: deque[_Written] = deque()
        self._kept: _Written | None = None
        self._last: _Written | None = None
        self._can = True

    def wrote(self, start: int, end: int, mono_ns: int, fields: Mapping[str, Any]) -> None:
        """Note a record that was written at these bytes, and give up what has become old.

        Raises:
            OSError: the file cannot be written any more.
        """
        if not self._can:
            return
        self._young.append(_Written(start, end, mono_ns, _told(fields)))
        while self._young and self._young[0].mono_ns < mono_ns - self._whole_ns:
            self._age(self._young.popleft())

    def _age(self, record: _Written) -> None:
        kept, last = self._kept, self._last
        self._last = record
        if kept is None or last is None:
            self._kept = record
        elif record.told != last.told or record.mono_ns - kept.mono_ns >= self._sparse_ns:
            self._give_back(kept.end, record.start)
            self._kept = record

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


def _told(analysis: Mapping[str, Any]) -> tuple[object, ...]:
    """What makes an analysis one that is kept when it changes: its verdict and its findings."""
    return tuple(
        (verdict.get("kind"), verdict.get("severity"), verdict.get("rank"))
        for verdict in (child(analysis, "verdict"), *children(analysis, "findings"))
    )
