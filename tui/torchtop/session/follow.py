"""Following a session live, as a stream of snapshots."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchtop.session.paths import SessionPaths, describe, is_session, liveness
from torchtop.session.records import boot_id, start_ticks
from torchtop.session.state import SessionState, Snapshot
from torchtop.session.tail import SessionTail

_LAST_BYTES = 4 << 20
"""How much of each growing file a live view reads at first: about the length of the charts."""

_RANK_BYTES = 256 << 10
"""The last minutes of a rank, of which the last state counts."""

NOT_SHOWN = ("steps", "totals", "scalars")
"""What the analyst alone reads: most of a rank's file."""

_LIVENESS_EVERY_S = 1.0


class Follower:
    """A live view of a session directory; call `poll` about once a second.

    Args:
        root: the directory: a session's, or the ``idle`` one of a viewer that shows none.
    """

    def __init__(self, root: Path) -> None:
        self.paths = SessionPaths(root)
        self._tail = SessionTail(
            self.paths, last_bytes=_LAST_BYTES, rank_bytes=_RANK_BYTES, without=NOT_SHOWN
        )
        self.state = SessionState(meta_of(self.paths))
        self._same_boot: bool | None = None
        self._lost = False
        self._checked = 0.0

    def poll(self) -> Snapshot:
        """Read what has come, and return how things stand. Never raises for a vanished file."""
        if not self.state.meta:
            self.state.meta = meta_of(self.paths)
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


def meta_of(paths: SessionPaths) -> Mapping[str, Any]:
    """What a session is; empty for the samples of a viewer that shows none."""
    return describe(paths) if is_session(paths) else {}
