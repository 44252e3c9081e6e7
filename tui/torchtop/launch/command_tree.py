"""The process tree of a command of the user's: its launchers and shells are not ours to know.

torchtop's own torchrun ends its ranks when it is asked to. A shell script does not: it dies of a
SIGTERM and leaves what it has started to run on, or, with a trap, waits for that to end. And a
script may put its training in the background and end at once, with all in order.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from torchtop.launch import processes
from torchtop.launch.cgroup import Cgroup
from torchtop.launch.journal import Journal
from torchtop.launch.ladder import Rung
from torchtop.launch.processes import Process
from torchtop.launch.ranks import WatchedRank
from torchtop.launch.spec import LaunchSpec
from torchtop.launch.tree import Tree

_SHELLS = ("sh", "bash", "dash", "zsh", "fish", "ksh", "csh", "tcsh", "ash", "busybox")
"""Programs that do not pass a SIGTERM on to what they have started."""

_START_S = 120.0
"""How long a Python process that the ended command has left may take to train: importing torch from
a cold network file system takes a minute."""

_NEXT_S = 10.0
"""How long a shell that it has left may take from one launch to the next."""


class CommandTree(Tree):
    """As `Tree`, for ``torchtop run -- COMMAND``."""

    def __init__(self, events: Journal, spec: LaunchSpec, group: Cgroup | None = None) -> None:
        super().__init__(events, spec, group)
        self._asked: set[tuple[int, int]] = set()

    def step(self, ranks: Sequence[WatchedRank], helpers: set[int]) -> None:
        """As `Tree.step`."""
        super().step(ranks, helpers)
        if self._ladder.rung is Rung.TERM:
            self._terminate(ranks, helpers)

    def _terminate(self, ranks: Sequence[WatchedRank], helpers: set[int]) -> None:
        """SIGTERM to launchers and shells, and to ranks that have nobody who would end them.

        To each once: a second one ends a torchrun that is ending its ranks.
        """
        own = os.getpid()
        left = {process.pid: process for process in self._left(helpers)}
        known = {rank.pid for rank in ranks}
        agent = self.agent.pid if self.agent is not None else None
        for process in left.values():
            parent = left.get(process.parent)
            alone = process.parent == own or (parent is not None and parent.name in _SHELLS)
            inside = any(pid in known for pid in self._path(process, left))
            if process.pid == agent or alone or not inside:
                self._send_once(process)

    @staticmethod
    def _path(process: Process, left: dict[int, Process]) -> list[int]:
        """The pids of a process and of all above it in the tree."""
        path = [process.pid]
        while (above := left.get(process.parent)) is not None and above.pid not in path:
            path.append(above.pid)
            process = above
        return path

    def _send_once(self, process: Process) -> None:
        identity = (process.pid, process.start_ticks)
        if identity not in self._asked:
            self._asked.add(identity)
            processes.send(process.pid, process.start_ticks, signal.SIGTERM)

    def _is_over(self, left: list[Process], ranks: Sequence[WatchedRank], now: float) -> bool:
        """Whether what the ended command has left is no training any more."""
        living = [rank for rank in ranks if rank.gone_ns is None]
        if living:
            return (self.agent_code or 0) < 0 and self._ladder.rung < Rung.TERM
        if self._ladder.rung >= Rung.TERM or (self.agent_code or 0) < 0:
            return True
        gone_ns = max([self.agent_gone_ns or 0, *(rank.gone_ns or 0 for rank in ranks)])
        waited_s = now - gone_ns / 1e9
        if any(_is_python(process) for process in left):
            return waited_s >= _START_S
        if any(process.name in _SHELLS for process in left):
            return waited_s >= _NEXT_S
        return True


def _is_python(process: Process) -> bool:
    """Whether a process runs Python, under whatever name: ``torchrun`` is the name of a script."""
    try:
        return Path(f"/proc/{process.pid}/exe").readlink().name.startswith("python")
    except OSError:
        return False
