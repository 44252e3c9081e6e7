"""The ends of the ranks' logs: tailed from files, made harmless, within fixed memory."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from torchtop.app.text import clean

_FIRST_READ = 64 << 10
_READ = 256 << 10
_LINE_BYTES = 4096
"""A longer line is cut: a progress bar without an end must not grow in memory."""

_KEPT = 2000
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[@-~]"
)
"""CSI, OSC and other string sequences, and two-character escapes (ECMA-48)."""

_RUBBED_OUT = re.compile("[^\x08]\x08")
"""A character and the backspace after it."""


COMMAND = -1
"""In a rank's place: what a command wrote, ranks without logs of their own among it."""


class LogLine(NamedTuple):
    """One line of one rank; `rank` is `COMMAND` where a command wrote it and no rank of its own."""

    rank: int
    stream: str
    text: str


@dataclass(frozen=True)
class LogPage:
    """The last lines of all ranks in the order in which they were read.

    Attributes:
        lines: the newest last.
        ranks: those that have a log.
        total: lines read so far, also those that are no longer kept.
        withheld: there may be lines, but none that is known to be of the moment that is shown.
    """

    lines: tuple[LogLine, ...] = ()
    ranks: tuple[int, ...] = ()
    total: int = 0
    withheld: bool = False


def neutralise(line: str) -> str:
    """A raw log line as a terminal would leave it, with nothing in it that a terminal obeys.

    Of the parts between carriage returns the last that is not empty stays, as on a screen: a
    progress bar is one line that changes. Escape sequences go; other controls become dots.
    """
    parts = [part for part in line.rstrip("\r\n").split("\r") if part]
    text = _ESCAPE.sub("", parts[-1]) if parts else ""
    while "\b" in text:
        shorter = _RUBBED_OUT.sub("", text)
        text = shorter if shorter != text else text.replace("\b", "")
    return clean(text).rstrip()


@dataclass
class _File:
    """One growing log file."""

    path: Path
    rank: int
    stream: str
    offset: int = -1
    rest: bytes = b""
    partial: str = ""

    def poll(self) -> tuple[int, list[str]]:
        """How many lines were ended since the last call, and the last of them as they are kept.

        `partial` is the one under way.
        """
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                skipped = self.offset < 0 and size > _FIRST_READ
                if self.offset < 0 or size < self.offset:
                    self.offset = max(0, size - _FIRST_READ)
                elif size - self.offset > _READ:
                    self.offset, self.rest, skipped = size - _READ, b"", True
                file.seek(self.offset)
                data = file.read(_READ)
        except OSError:
            return 0, []
        self.offset += len(data)
        lines = (self.rest + data).split(b"\n")
        if skipped and len(lines) > 1:
            del lines[0]
        self.rest = _shorten(lines.pop())
        self.partial = neutralise(self.rest.decode("utf-8", "replace"))
        last = lines[-_KEPT:]
        return len(lines), [neutralise(_shorten(line).decode("utf-8", "replace")) for line in last]


def _shorten(line: bytes) -> bytes:
    """A line cut to a few KiB: the part after its last carriage return, from its beginning."""
    if len(line) <= _LINE_BYTES:
        return line
    return line.rstrip(b"\r").rpartition(b"\r")[2][:_LINE_BYTES]


@dataclass
class LogTail:
    """All log files below a session's ``logs`` folder, found as they appear.

    Args:
        root: the folder; torchrun lays it out as ``<run>/attempt_<n>/<rank>/<stream>.log``;
            what a command wrote is in a run called ``command``.
    """

    root: Path
    _files: dict[Path, _File] = field(default_factory=dict)
    _lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _total: int = 0
    _page: LogPage = field(default_factory=LogPage)

    def poll(self) -> LogPage:
        """The page as it is now; the same object when nothing was written."""
        self._discover()
        before = self._total, self._tail()
        for file in self._files.values():
            ended, texts = file.poll()
            self._lines.extend(LogLine(file.rank, file.stream, text) for text in texts)
            self._total += ended
        tail = self._tail()
        if (self._total, tail) != before or (self._files and not self._page.ranks):
            ranks = tuple(sorted({file.rank for file in self._files.values()}))
            self._page = LogPage((*self._lines, *tail), ranks, self._total + len(tail))
        return self._page

    def _tail(self) -> tuple[LogLine, ...]:
        """Lines under way, such as progress bars."""
        return tuple(
            LogLine(f.rank, f.stream, f.partial) for f in self._files.values() if f.partial
        )

    def _discover(self) -> None:
        try:
            found = sorted(self.root.glob("*/attempt_*/*/std*.log"))
        except OSError:
            return
        for path in found:
            if path not in self._files and path.parent.name.isdigit():
                command = path.parent.parent.parent.name == "command"
                rank = COMMAND if command else int(path.parent.name)
                self._files[path] = _File(path, rank, path.stem)
