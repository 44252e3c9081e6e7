"""A recorded session at any moment, however long it ran.

The minutes of the whole run come from ``history.jsonl``. Of the files that grow by the second only
the part is read that the charts of the moment show: a day of eight ranks is more than a gigabyte.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchtop.session.folds import SERIES_SECONDS
from torchtop.session.follow import NOT_SHOWN, meta_of
from torchtop.session.paths import SessionPaths
from torchtop.session.records import Record
from torchtop.session.state import SessionState, Snapshot
from torchtop.session.tail import SessionTail
from torchtop.session.timeline import TimedFile, is_of_later

_SECOND_NS = 1_000_000_000
_SERIES_NS = SERIES_SECONDS * _SECOND_NS
_RANK_NS = 60 * _SECOND_NS
"""Of a rank the last state counts: each kind of record comes at least every few seconds."""


@dataclass
class _Growing:
    """A file that grows by the second, and how much of it one moment shows."""

    source: str
    file: TimedFile
    window_ns: int


class Replay:
    """A recorded session, shown as it looked at any moment.

    Args:
        root: the session directory.
    """

    def __init__(self, root: Path) -> None:
        self.paths = SessionPaths(root)
        self._meta = meta_of(self.paths)
        self._growing = [
            _Growing(source, TimedFile(root / source, NOT_SHOWN), _window_ns(source))
            for source in _files(self.paths)
            if _grows(source)
        ]
        tail = SessionTail(self.paths, skip=tuple(g.source for g in self._growing))
        self._whole: list[tuple[int, str, Record]] = sorted(
            (
                (0 if is_of_later(r) else r.get("mono_ns") or 0, source, r)
                for source, r in tail.poll()
            ),
            key=lambda item: item[0],
        )
        self._bad, self._newer = tail.bad, tail.newer_schema
        # Nodes have clocks of their own; those of the first are the session's time.
        first = [g.file.first_ns for g in self._growing if g.file.first_ns is not None]
        last = [g.file.last_ns for g in self._growing if g.file.last_ns is not None]
        stamps = [stamp for stamp, _, _ in self._whole if stamp]
        self.start_ns: int = min([*first, *stamps], default=0)
        self.end_ns: int = max([*last, *stamps], default=0)
        self._now = self.start_ns
        self._begin(self.start_ns)

    def _begin(self, now_ns: int) -> None:
        """Start anew with what a moment shows."""
        self._state, self._next = SessionState(self._meta), 0
        for growing in self._growing:
            for record in growing.file.head:
                if record.get("mono_ns", 0) <= now_ns:
                    self._state.apply(growing.source, record)
            growing.file.start(now_ns - growing.window_ns)

    def at(self, now_ns: int) -> Snapshot:
        """The session as it looked at `now_ns`; going back, or far on, costs more than going on."""
        now_ns = min(now_ns, self.end_ns)
        if not self._now <= now_ns <= self._now + _SERIES_NS:
            self._begin(now_ns)
        self._now = now_ns
        while self._next < len(self._whole) and self._whole[self._next][0] <= now_ns:
            _, source, record = self._whole[self._next]
            self._state.apply(source, record)
            self._next += 1
        for growing in self._growing:
            for record in growing.file.take(now_ns):
                self._state.apply(growing.source, record)
        bad = self._bad + sum(growing.file.bad for growing in self._growing)
        newer = self._newer or any(growing.file.newer_schema for growing in self._growing)
        return self._state.snapshot(now_ns, False, bad, newer)


def _files(paths: SessionPaths) -> list[str]:
    found = [sorted(paths.root.glob(p)) for p in ("nodes/*/*.jsonl", "ranks/*.jsonl", "*.jsonl")]
    return [str(path.relative_to(paths.root)) for group in found for path in group]


def _grows(source: str) -> bool:
    """Whether a file grows by the second, and may be long."""
    if source.startswith("ranks/"):
        return not source.endswith(".process.jsonl")
    return source.endswith(("devices.jsonl", "analysis.jsonl"))


def _window_ns(source: str) -> int:
    return _RANK_NS if source.startswith("ranks/") else _SERIES_NS
