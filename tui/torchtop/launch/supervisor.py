"""The supervisor: one a session and node. It starts the run, watches it, and ends all of it.

A process of its own with a single thread, in an OS session of its own, so that no terminal and no
viewer can take it down. It holds a lock for as long as it lives: whoever wants to know whether the
session is alive asks the kernel, not a pid.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import time
import traceback
from pathlib import Path

from torchtop.launch import children, evidence, helpers, interpreter, torchrun
from torchtop.launch.cgroup import Cgroup
from torchtop.launch.children import Child
from torchtop.launch.command_tree import CommandTree
from torchtop.launch.disk import DiskWatch
from torchtop.launch.exit_cause import Stop, exit_record, signal_name
from torchtop.launch.hints import Hints
from torchtop.launch.inspections import ask_ranks
from torchtop.launch.journal import Journal
from torchtop.launch.ladder import MODES, Rung
from torchtop.launch.limits import Limits
from torchtop.launch.oom import MemoryWatch
from torchtop.launch.ranks import RankWatch, WatchedRank
from torchtop.launch.spec import LaunchError, LaunchSpec
from torchtop.launch.stacks import Stacks
from torchtop.launch.tree import Tree
from torchtop.launch.wakeup import STOP_SIGNALS, Wakeup
from torchtop.session.paths import NodePaths, SessionPaths, iter_requests
from torchtop.session.records import Appender
from torchtop.session.summary import status_of, write_summary

LAUNCH_FILE = "launch.json"
"""The spec, in the session's ``stage`` folder."""

_EVENTS_ROOM_BYTES = 256 << 10
"""How a run ended must be told although the disk is full."""

_TICK_S = 0.25
_LOCK_TIMEOUT_S = 5.0
_GPU_FREE_S = 10.0
_ANALYST_END_S = 10.0
_SAMPLER_END_S = 3.0


class Supervisor:
    """The supervision of one session on this node.

    Args:
        paths: the session.
        node: this node's files in it.
        spec: what to run.
        events: where its records go.
        group: the control group of the run, or None.
    """

    def __init__(
        self,
        paths: SessionPaths,
        node: NodePaths,
        spec: LaunchSpec,
        events: Journal,
        group: Cgroup | None = None,
    ) -> None:
        self._paths = paths
        self._node = node
        self._spec = spec
        self._events = events
        self._wakeup = Wakeup()
        self._ranks = RankWatch(paths, socket.gethostname())
        self._helpers: dict[str, Child] = {}
        self._stop: Stop | None = None
        self._taken: set[Path] = set()
        self._limits = Limits(spec, self._ranks.last_step)
        self._launch_error: str | None = None
        self._group = group
        self._tree = (Tree if spec.by_torchrun else CommandTree)(events, spec, group)
        self._memory = MemoryWatch()
        self._disk = DiskWatch(paths, events)
        self._stacks = Stacks(paths, events)
        self._hints = Hints(paths, spec, events)

    def run(self, command: list[str]) -> None:
        """Start everything, wait for the end of the run, and leave nothing behind."""
        self._start_helpers()
        self._hints.begin()
        self._start_agent(command)
        started_s = time.monotonic()
        while not self._tree.is_gone:
            signals = self._wakeup.wait(self._tree.tick_s(_TICK_S), self._ranks.pidfds)
            if any(signum in signals for signum in STOP_SIGNALS):
                self._ask(Rung.TERM, "user", "a signal to the supervisor")
            self._reap()
            self._observe(started_s)
            self._tree.step(self._ranks.ranks, self._helper_pids)
        self._watch_ranks()
        self._finish()

    def _observe(self, started_s: float) -> None:
        """Look at files. What is wrong with a file must not end a training of days."""
        try:
            self._watch_ranks()
            self._take_requests()
            self._check_limits(started_s)
            self._disk.look()
            self._hints.look(self._helper_pids)
        except Exception:
            self._events.complain("the supervisor failed to look at the session")

    @property
    def _helper_pids(self) -> set[int]:
        return {child.pid for child in self._helpers.values()}

    def _start_helpers(self) -> None:
        """The run goes on without a helper that cannot be started; its panes stay empty."""
        root = self._paths.root
        for role, command in helpers.commands(self._paths, self._node).items():
            try:
                log = root / "supervisor.log"
                child = children.spawn(role, command, output=log, cwd=root, env=os.environ)
            except OSError:
                self._events.complain(f"cannot start the {role}")
                continue
            self._helpers[role] = child
            self._tell_process(role, child.pid, child.start_ticks, None)

    def _start_agent(self, command: list[str]) -> None:
        log = evidence.agent_log(self._paths, not self._spec.by_torchrun)
        try:
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            agent = children.spawn(
                "agent",
                command,
                output=log,
                cwd=Path(self._spec.cwd),
                env=torchrun.environment(self._spec, self._paths, os.environ),
                group=self._group,
            )
        except OSError as error:
            self._launch_error = f"cannot start {command[0]}: {error.strerror}"
            return
        self._tree.agent = agent
        self._tell_process("agent", agent.pid, agent.start_ticks, None)

    def _tell_process(self, role: str, pid: int, ticks: int | None, rank: int | None) -> None:
        self._events.write("process", role=role, process_pid=pid, pid_start_ticks=ticks, rank=rank)

    def _reap(self) -> None:
        statuses = children.reap()
        self._tree.note_status(statuses)
        self._ranks.note_status(statuses)
        # A helper that has ended must not keep its number out of the tree.
        self._helpers = {r: c for r, c in self._helpers.items() if c.pid not in statuses}

    def _watch_ranks(self) -> None:
        for rank in self._ranks.poll():
            self._tell_process("rank", rank.pid, rank.start_ticks, rank.rank)
        for rank in self._ranks.ranks:
            known = rank.status is not None or rank.exit is not None
            if rank.gone_ns is not None and known and not rank.told:
                code = rank.status if rank.status is not None else (rank.exit or {}).get("code")
                self._tell_exit(rank, code)

    def _tell_exit(self, rank: WatchedRank, code: int | None) -> None:
        rank.told = True
        self._events.write(
            "rank_exit",
            mono_ns=rank.gone_ns,
            rank=rank.rank,
            process_pid=rank.pid,
            code=code,
            signal=signal_name(code) if code is not None and code < 0 else None,
        )

    def _take_requests(self) -> None:
        for file, request in list(iter_requests(self._node)):
            if file in self._taken:
                continue
            self._taken.add(file)
            mode, who = request.get("mode"), str(request.get("requested_by") or "unknown")
            if mode == "stacks":
                self._stacks.ask(self._ranks.ranks, who)
            elif mode == "inspect":
                ask_ranks(self._paths, self._events, request)
            elif (rung := MODES.get(str(mode))) is not None:
                self._ask(rung, "user", who)
            try:
                file.unlink()
            except OSError:
                continue
            # Only what cannot be removed is remembered: the same name may ask again.
            self._taken.discard(file)

    def _check_limits(self, started_s: float) -> None:
        if (reached := self._limits.reached(started_s, time.monotonic())) is not None:
            self._ask(Rung.TERM, *reached)

    def _ask(self, rung: Rung, why: str, requested_by: str) -> None:
        if not self._tree.ask(rung):
            return
        mode = next(name for name, asked in MODES.items() if asked is rung)
        self._events.write("stop", requested_by=requested_by, mode=mode, why=why)
        self._stop = self._stop or Stop(why, time.monotonic_ns())
        self._tree.act(self._ranks.ranks, self._helper_pids)

    def _finish(self) -> None:
        """Close the session in order: whoever sees ``end`` finds everything else there."""
        self._wait_for_gpus()
        if analyst := self._helpers.get("analyst"):
            helpers.end(analyst, _ANALYST_END_S)
        found = evidence.gather(
            self._paths,
            self._ranks.ranks,
            agent_code=self._tree.agent_code,
            agent_gone_ns=self._tree.agent_gone_ns,
            stop=self._stop,
            launch_error=self._launch_error,
            is_command=not self._spec.by_torchrun,
            memory=self._memory.look(),
        )
        codes = {rank.rank: rank.code for rank in found.ranks}
        for rank in self._ranks.ranks:
            if not rank.told:
                self._tell_exit(rank, codes.get(rank.rank))
        record = exit_record(found)
        self._hints.end(ended_well=record["cause"] == "completed")
        self._events.write("exit", **record)
        if sampler := self._helpers.get("sampler"):
            helpers.end(sampler, _SAMPLER_END_S)
        children.reap()
        _summarise(self._paths)
        self._events.write("end", status=status_of(record["cause"]))

    def _wait_for_gpus(self) -> None:
        sampler = self._helpers.get("sampler")
        if self._spec.device != "cuda" or sampler is None or self._tree.agent is None:
            return
        pids = self._tree.seen_pids | {rank.pid for rank in self._ranks.ranks}
        holding = helpers.wait_for_free_gpus(sampler, self._node, pids, _GPU_FREE_S)
        if holding:
            self._events.write("gpu_held", process_pids=holding, waited_s=_GPU_FREE_S)


def _summarise(paths: SessionPaths) -> None:
    """A summary can be made again from the records; its failure must not keep a session open."""
    try:
        write_summary(paths)
    except Exception:
        with contextlib.suppress(OSError):
            traceback.print_exc()


def _take_lock(path: Path) -> int:
    """Take the lock, which readers may hold for a moment while they test it.

    Raises:
        LaunchError: another supervisor has it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError:
            if time.monotonic() >= until:
                raise LaunchError("this session has a supervisor already") from None
        time.sleep(0.01)


def supervise(paths: SessionPaths) -> None:
    """Run a session from its staged spec to its end.

    Raises:
        LaunchError: it cannot begin.
        OSError: the session directory cannot be written.
    """
    spec = LaunchSpec.load(paths.stage / LAUNCH_FILE)
    node = paths.node()
    lock = _take_lock(node.lock)
    children.become_subreaper()
    command = torchrun.command(spec, paths, interpreter.inspect(spec.python))
    group = Cgroup.make(paths.id)
    appender = Appender(
        node.events,
        "supervisor",
        room_bytes=_EVENTS_ROOM_BYTES,
        session=paths.id,
        command=command,
        cwd=spec.cwd,
        device=spec.device,
        nproc=spec.ranks,
        cgroup=str(group.folder) if group is not None else None,
    )
    try:
        Supervisor(paths, node, spec, Journal(appender), group).run(command)
    finally:
        appender.close()
        if group is not None:
            group.remove()
        os.close(lock)


def main() -> int:
    """The process: ``supervisor SESSION_DIR``."""
    try:
        supervise(SessionPaths(Path(sys.argv[1])))
    except LaunchError as error:
        print(f"torchtop: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
