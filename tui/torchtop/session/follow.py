"""Following a session live, or replaying one, as a stream of snapshots."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchtop.session.paths import SessionPaths, describe, is_session, liveness
from torchtop.session.records import Record, boot_id, start_ticks
from torchtop.session.state import SessionState, Snapshot
from torchtop.session.tail import SessionTail

_LAST_BYTES = 4 << 20
"""How much of each growing file a live view reads at first: about the length of the charts."""

_NOT_SHOWN = ("steps", "totals", "scalars")
"""What the analyst alone reads: most of a rank's file."""

_LIVENESS_EVERY_S = 1.0


class Follower:
    """A live view of a session directory; call `poll` about once a second.

    Args:
        root: the directory: a session's, or the ``idle`` one of a viewer that shows none.
    """

    def __init__(self, root: Path) -> None:
        self.paths = SessionPaths(root)
        self._tail = SessionTail(self.paths, last_bytes=_LAST_BYTES, without=_NOT_SHOWN)
        self.state = SessionState(_meta(self.paths))
        self._same_boot: bool | None = None
        self._lost = False
        self._checked = 0.0

    def poll(self) -> Snapshot:
        """Read what has come, and return how things stand. Never raises for a vanished file."""
        if not self.state.meta:
            self.state.meta = _meta(self.paths)
        for source, record in self._tail.poll():
            if self._same_boot is None and record["kind"] == "header":
                self._same_boot = record.get("boot_id") == boot_id()
            self.state.apply(source, record)
        if time.monotonic() - self._checked > _LIVENESS_EVERY_S and self.state.meta:
            self._lost = liveness(self.paths) == "lost"
            self._checked = time.monotonic()
        now = time.monotonic_ns() if self._same_boot else None
        if self._lost:
            now = None  # time stops with the supervisor: nothing ages while nobody looks
        seen = self.state.snapshot(now, self._lost, self._tail.bad, self._tail.newer_schema)
        if not self._lost or self.paths.root.is_dir():
            return seen
        return replace(seen, deleted=True, unseen_supervisor=self._supervisor(seen))

    def _supervisor(self, seen: Snapshot) -> int | None:
        """The pid of the session's supervisor on this host, while it lives."""
        here = boot_id()
        for event in seen.events:
            if event.get("kind") == "header" and event.get("boot_id") == here:
                pid, ticks = event.get("pid"), event.get("pid_start_ticks")
                if isinstance(pid, int) and ticks is not None and start_ticks(pid) == ticks:
                    return pid
        return None


def _meta(paths: SessionPaths) -> Mapping[str, Any]:
    """What a session is; empty for the samples of a viewer that shows none."""
    return describe(paths) if is_session(paths) else {}


class Replay:
    """A recorded session, shown as it looked at any moment.

    Args:
        root: the session directory.
    """

    def __init__(self, root: Path) -> None:
        self.paths = SessionPaths(root)
        self._meta = _meta(self.paths)
        tail = SessionTail(self.paths, without=_NOT_SHOWN)
        self._records: list[tuple[int, str, Record]] = sorted(
            ((r.get("mono_ns") or 0, source, r) for source, r in tail.poll()),
            key=lambda item: item[0],
        )
        self._bad, self._newer = tail.bad, tail.newer_schema
        # Nodes have clocks of their own; those of the first are the session's time.
        self._state = SessionState(self._meta)
        self._next = 0
        self._now = self.start_ns

    @property
    def start_ns(self) -> int:
        """When the first record was written."""
        return self._records[0][0] if self._records else 0

    @property
    def end_ns(self) -> int:
        """When the last record was written."""
        return self._records[-1][0] if self._records else 0

    def at(self, now_ns: int) -> Snapshot:
        """The session as it looked at `now_ns`; going back is allowed (and costs more)."""
        if now_ns < self._now:
            self._state, self._next = SessionState(self._meta), 0
        self._now = now_ns
        while self._next < len(self._records) and self._records[self._next][0] <= now_ns:
            _, source, record = self._records[self._next]
            self._state.apply(source, record)
            self._next += 1
        return self._state.snapshot(now_ns, False, self._bad, self._newer)
