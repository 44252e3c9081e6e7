"""A controller over made-up sessions, for tests and for development.

``python -m app.fake_controller [CASE]`` opens the viewer on it; ``--replay`` replays.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.made_session import CASES, live, make, make_idle
from torchtop.app.controller import ControllerError, LeftBehind, StopMode, WorkloadEntry
from torchtop.session.inspections import Inspected
from torchtop.session.paths import SessionPaths
from torchtop.session.stacks import RankStack

CATALOG = (
    WorkloadEntry(1, "resnet50-cifar10", "ResNet-50 on CIFAR-10, global batch 256"),
    WorkloadEntry(2, "compute-heavy", "the healthy control: GPU-bound"),
    WorkloadEntry(
        3,
        "slow-loader",
        "a loader that cannot keep up",
        defaults=lambda meta: {"batch": 64, "seed": 7, "synthetic_size": meta["device"]},
    ),
    WorkloadEntry(4, "comm-heavy", "large gradients, little compute"),
    WorkloadEntry(5, "straggler", "one rank is slow in its optimizer"),
    WorkloadEntry(7, "ours", "a script of this directory", "file"),
    WorkloadEntry(None, "mine", "my own script", "file", problem="train.py is not there"),
)
_CASE_OF = {"resnet50-cifar10": "undecided", "compute-heavy": "healthy"}


class FakeController:
    """Starts sessions that a thread writes; remembers what it was asked.

    Args:
        root: where sessions are made.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[tuple[object, ...]] = []
        self.stop_takes: threading.Event | None = None
        self.refuses: str | None = None
        self.unread: dict[str, str] = {}
        self.catalog = CATALOG
        self.left: list[LeftBehind] = []
        self.ranks_stand: list[RankStack] = []
        self.ranks_found: list[Inspected] = []
        self._stops: dict[Path, threading.Event] = {}
        self._threads: dict[Path, threading.Thread] = {}
        self._idle: Path | None = None
        self._idling = threading.Lock()

    def workloads(self) -> Sequence[WorkloadEntry]:
        return self.catalog

    def consent(self, name: str, options: Mapping[str, str]) -> str | None:
        return self.unread.get(name)

    def agree(self, name: str) -> None:
        self.calls.append(("agree", name))
        del self.unread[name]

    def start(self, name: str, options: dict[str, str]) -> Path:
        self.calls.append(("start", name, options))
        if self.refuses:
            raise ControllerError(self.refuses)
        session = self.root / f"20261130-{len(self._threads):06d}-{name}"
        stop = self._stops[session] = threading.Event()
        case = CASES.get(_CASE_OF.get(name, name), CASES["healthy"])
        writer = threading.Thread(
            target=live, args=(session, case, lambda: not stop.is_set()), daemon=True
        )
        self._threads[session] = writer
        writer.start()
        while not (session / "session.json").exists():
            writer.join(0.01)
        return session

    def stop(self, session: Path, mode: StopMode) -> None:
        self.calls.append(("stop", session, mode))
        if session in self._stops:
            self._stops[session].set()

    def wait_ended(self, session: Path, timeout_s: float) -> bool:
        self.calls.append(("wait_ended", session))
        if self.stop_takes is not None:
            return self.stop_takes.wait(timeout_s)
        if session in self._threads:
            self._threads[session].join(timeout_s)
            return not self._threads[session].is_alive()
        return True

    def stacks(self, session: Path) -> Sequence[RankStack]:
        self.calls.append(("stacks", session))
        if self.refuses:
            raise ControllerError(self.refuses)
        return self.ranks_stand

    def inspect(self, session: Path) -> Sequence[Inspected]:
        self.calls.append(("inspect", session))
        if self.refuses:
            raise ControllerError(self.refuses)
        return self.ranks_found

    def left_behind(self, session: Path | None) -> Sequence[LeftBehind]:
        return [p for p in self.left if session is None or p.session == session.name]

    def sweep(self, session: Path | None) -> Sequence[LeftBehind]:
        self.calls.append(("sweep", session))
        self.left = [p for p in self.left if p not in self.left_behind(session)]
        return self.left_behind(session)

    def save_summary(self, session: Path) -> Path:
        self.calls.append(("save", session))
        return session / "summary.md"

    def idle_directory(self) -> Path:
        with self._idling:
            if self._idle is None:
                self._idle = make_idle(self.root.parent / "idle", CASES["healthy"])
            return self._idle

    def sessions(self) -> Sequence[SessionPaths]:
        roots = [p for p in self.root.iterdir() if (p / "session.json").exists()]
        return [SessionPaths(p) for p in sorted(roots, reverse=True)]

    def close(self) -> None:
        self.calls.append(("close",))
        for stop in self._stops.values():
            stop.set()


def main(arguments: list[str]) -> int:
    """Open the viewer on a case, or idle without one."""
    from torchtop.app import run_viewer

    replay = "--replay" in arguments
    names = [a for a in arguments if not a.startswith("-")]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "sessions"
        root.mkdir()
        controller = FakeController(root)
        session = None
        if names and "--live" in arguments:
            session = controller.start(names[0], {})
        elif names:
            session = make(root / names[0], CASES[names[0]])
        return run_viewer(controller, session, replay)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
