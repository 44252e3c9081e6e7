"""The thread that reads a session and tells the app how it stands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

from textual.message import Message

from torchtop.app.logs import LogPage, LogTail
from torchtop.app.messages import SnapshotReady, Told
from torchtop.app.view import ReplayPosition
from torchtop.session.baselines import Watched
from torchtop.session.follow import Follower
from torchtop.session.paths import SessionPaths
from torchtop.session.presence import watching
from torchtop.session.replay import Replay
from torchtop.session.state import Snapshot

INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
SEEK_S = 10.0
SPEEDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""How many seconds of a replay pass in one: a day in five minutes at most."""


class Source(Protocol):
    """Where snapshots come from: a live session, or a recorded one."""

    def look(self, passed_s: float) -> Snapshot:
        """How things stand, `passed_s` after the last look."""
        ...

    @property
    def position(self) -> ReplayPosition | None:
        """Where a replay is; None when live."""
        ...


class LiveSource:
    """A session as it is now."""

    position: ReplayPosition | None = None

    def __init__(self, directory: Path) -> None:
        self._follower = Follower(directory)

    def look(self, passed_s: float) -> Snapshot:
        """Read what has come."""
        return self._follower.poll()


class ReplaySource:
    """A recorded session at a moment that moves, stands still or jumps."""

    def __init__(self, directory: Path) -> None:
        self._replay = Replay(directory)
        self._at_ns = self._replay.start_ns
        self.playing = True
        self.speed = SPEEDS[0]

    @property
    def position(self) -> ReplayPosition:
        """Where the replay is."""
        start, end = self._replay.start_ns, self._replay.end_ns
        at_s, length_s = (self._at_ns - start) / 1e9, (end - start) / 1e9
        return ReplayPosition(at_s, length_s, self.playing, self.speed)

    def look(self, passed_s: float) -> Snapshot:
        """The session at the new moment."""
        if self.playing:
            self.seek(passed_s * self.speed)
        return self._replay.at(self._at_ns)

    def seek(self, seconds: float) -> None:
        """Move by so many seconds, within the session."""
        moved = self._at_ns + round(seconds * 1e9)
        self._at_ns = max(self._replay.start_ns, min(self._replay.end_ns, moved))
        if self._at_ns == self._replay.end_ns:
            self.playing = False


def _at_end(position: ReplayPosition | None) -> bool:
    """Whether all of the logs was written by now: their lines carry no time to cut them by."""
    return position is None or position.at_s >= position.length_s


class FollowThread(threading.Thread):
    """Reads a session directory once an interval until it is stopped.

    A daemon: a hanging file system must not keep the viewer from leaving.

    Args:
        directory: the session's.
        post: takes messages; called on this thread.
        interval_s: seconds between looks.
        replay: the session is recorded, and played from its beginning.
    """

    def __init__(
        self,
        directory: Path,
        post: Callable[[Message], object],
        interval_s: float = 1.0,
        replay: bool = False,
    ) -> None:
        super().__init__(name="torchtop-follow", daemon=True)
        self.directory = directory
        self.interval_s = interval_s
        self._post, self._replay = post, replay
        self._wake = threading.Event()
        self._ended = False
        self._lock = threading.Lock()
        self._seek_s = 0.0
        self._toggle = False
        self._faster = 0
        self._failed = ""
        self._baselines = Watched()

    def run(self) -> None:
        """Look, tell, wait; whoever looks at a live session counts as its viewer."""
        with nullcontext() if self._replay else watching(SessionPaths(self.directory)):
            self._run()

    def _run(self) -> None:
        source: Source | None = None
        logs = LogTail(SessionPaths(self.directory).logs)
        passed_s = 0.0
        while not self._ended:
            try:
                if source is None:
                    source = (ReplaySource if self._replay else LiveSource)(self.directory)
                asked = self._steer(source)
                snapshot = source.look(0.0 if asked else passed_s)
                page = logs.poll() if _at_end(source.position) else LogPage(withheld=True)
            except Exception as error:
                self._complain(error)
            else:
                base = self._baselines.of(snapshot.meta.get("workload"))
                self._post(SnapshotReady(self.directory, snapshot, page, source.position, base))
            woken = self._wake.wait(self.interval_s)
            passed_s = 0.0 if woken else self.interval_s
            self._wake.clear()

    def _steer(self, source: Source) -> bool:
        """Carry out what was asked of a replay; whether something was."""
        with self._lock:
            seek_s, toggle, faster = self._seek_s, self._toggle, self._faster
            self._seek_s, self._toggle, self._faster = 0.0, False, 0
        if isinstance(source, ReplaySource) and (seek_s or toggle or faster):
            if toggle:
                source.playing = not source.playing
            at = SPEEDS.index(source.speed) + faster
            source.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, at))]
            if seek_s:
                source.seek(seek_s)
            return True
        return False

    def _complain(self, error: Exception) -> None:
        """Say once what went wrong, and go on: the next look may succeed."""
        told = f"cannot read the session: {type(error).__name__}: {error}"
        if told != self._failed:
            self._failed = told
            self._post(Told(told, error=True))

    def seek(self, seconds: float) -> None:
        """Move a replay; infinity goes to its end."""
        with self._lock:
            self._seek_s += max(-1e8, min(1e8, seconds))
        self._wake.set()

    def toggle(self) -> None:
        """Let a replay stand still, or go on."""
        with self._lock:
            self._toggle = not self._toggle
        self._wake.set()

    def change_speed(self, steps: int) -> None:
        """Let a replay go faster (positive) or slower."""
        with self._lock:
            self._faster += steps
        self._wake.set()

    def look_now(self) -> None:
        """Do not wait for the interval to pass."""
        self._wake.set()

    def end(self) -> None:
        """Stop soon; does not wait."""
        self._ended = True
        self._wake.set()
