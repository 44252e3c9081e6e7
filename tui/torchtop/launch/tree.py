"""The process tree of a run: climbing the stop ladder on it until nothing is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from torchtop.launch import processes
from torchtop.launch.cgroup import Cgroup
from torchtop.launch.children import Child
from torchtop.launch.journal import Journal
from torchtop.launch.ladder import Ladder, Rung
from torchtop.launch.processes import Process
from torchtop.launch.ranks import WatchedRank
from torchtop.launch.spec import LaunchSpec

_KILL_EVERY_S = 0.05


class Tree:
    """torchrun and everything below it, however far it has detached itself.

    Args:
        events: where escalations go.
        spec: for the time limits.
        group: of which all of it is a member, where there is one.

    Attributes:
        agent: torchrun's process; None until it is started.
        agent_code: its exit code, negative for a signal.
        agent_gone_ns: when it was reaped.
        seen_pids: every pid that was found in the tree while it was being ended.
    """

    def __init__(self, events: Journal, spec: LaunchSpec, group: Cgroup | None = None) -> None:
        self.agent: Child | None = None
        self.agent_code: int | None = None
        self.agent_gone_ns: int | None = None
        self.seen_pids: set[int] = set()
        self._events = events
        self._group = group
        self._ladder = Ladder(spec.soft_timeout_s, spec.shutdown_timeout_s)
        self._empty = False

    @property
    def is_gone(self) -> bool:
        """Whether nothing of the tree is left, or what is left cannot be ended."""
        return self.agent is None or self._empty

    def tick_s(self, normal_s: float) -> float:
        """How long to sleep at most before the next `step`."""
        return _KILL_EVERY_S if self._ladder.rung >= Rung.SWEEP else normal_s

    def note_status(self, statuses: dict[int, int]) -> None:
        """Take in exit codes from waitpid."""
        if self.agent is not None and self.agent_code is None and self.agent.pid in statuses:
            self.agent_code = statuses[self.agent.pid]
            self.agent_gone_ns = time.monotonic_ns()

    def ask(self, rung: Rung) -> bool:
        """Go up to a rung of the ladder; False when it is there or above already."""
        return self._ladder.ask(rung, time.monotonic())

    def step(self, ranks: Sequence[WatchedRank], helpers: set[int]) -> None:
        """Go on with ending the tree, if there is reason to.

        Args:
            ranks: the ranks, for the signals that are meant for them alone.
            helpers: pids of the supervisor's own helpers, which are not part of the tree.
        """
        now = time.monotonic()
        if self.agent_gone_ns is not None:
            left = self._left(helpers)
            if not left:
                self._empty = True
                return
            if self._is_over(left, ranks, now) and self._ladder.ask(Rung.SWEEP, now):
                self.act(ranks, helpers)
        if (rung := self._ladder.overdue(now)) is not None:
            self._escalate(rung, now)
            self.act(ranks, helpers)
        elif self._ladder.hopeless(now):
            self._give_up(helpers)
        elif self._ladder.rung is Rung.KILL:
            self.act(ranks, helpers)

    def act(self, ranks: Sequence[WatchedRank], helpers: set[int]) -> None:
        """Send the signals of the present rung."""
        rung = self._ladder.rung
        if rung is Rung.SOFT:
            living = [rank for rank in ranks if rank.gone_ns is None]
            for rank in living:
                processes.send(rank.pid, rank.start_ticks, signal.SIGTERM)
            if not living:
                # Nobody is there to save anything: torchrun is still starting.
                self._escalate(Rung.TERM, time.monotonic())
                rung = Rung.TERM
        if rung is Rung.TERM:
            self._terminate(ranks, helpers)
        if rung is Rung.KILL and self._group is not None:
            self._group.kill()
        if rung >= Rung.SWEEP:
            signum = signal.SIGKILL if rung is Rung.KILL else signal.SIGTERM
            for process in self._left(helpers):
                processes.send(process.pid, process.start_ticks, signum)

    def _terminate(self, ranks: Sequence[WatchedRank], helpers: set[int]) -> None:
        """Ask for an orderly end: torchrun ends its ranks itself."""
        if self.agent is not None:
            processes.send(self.agent.pid, self.agent.start_ticks, signal.SIGTERM)

    def _is_over(self, left: list[Process], ranks: Sequence[WatchedRank], now: float) -> bool:
        """Whether what is left although the agent has gone is to be ended."""
        return True

    def _left(self, helpers: set[int]) -> list[Process]:
        left = processes.descendants(os.getpid(), without=helpers)
        if self._group is not None:
            known = {process.pid for process in left}
            others = (processes.look(pid) for pid in self._group.pids() if pid not in known)
            left += [process for process in others if process is not None]
        self.seen_pids.update(process.pid for process in left)
        return left

    def _escalate(self, rung: Rung, now: float) -> None:
        waited = now - self._ladder.since_s
        self._ladder.ask(rung, now)
        self._events.write("escalated", stage=rung.name.lower(), waited_s=round(waited, 3))

    def _give_up(self, helpers: set[int]) -> None:
        """Tell what SIGKILL did not end; the session ends all the same."""
        for process in self._left(helpers):
            self._events.write(
                "leftover",
                process_pid=process.pid,
                state=process.state,
                name=process.name,
            )
        self._empty = True
