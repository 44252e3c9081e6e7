"""Watching a session as plain lines, one a second: for logs, CI and scripts."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from torchtop.app.format import rank_count
from torchtop.app.gone import GONE, silence
from torchtop.commands.text import duration, named, number, one_line, safe
from torchtop.launch.sweep import all_leftovers, is_of, unseen
from torchtop.session.ephemeral import is_ephemeral, reference
from torchtop.session.failure import failure_of
from torchtop.session.follow import Follower
from torchtop.session.paths import SessionPaths, describe, request_stop
from torchtop.session.presence import watching
from torchtop.session.saved import saved_summary
from torchtop.session.state import Snapshot
from torchtop.session.values import child, children
from torchtop.session.values import number as numeric

_LETTERS = {
    "data": "data",
    "forward": "fwd",
    "backward": "bwd",
    "exposed_comm": "comm",
    "pre_optimizer": "pre-opt",
    "optimizer": "opt",
    "other": "other",
    "unknown": "unknown",
}
DETACHED = 0
STOPPED = 130


def watch(paths: SessionPaths, interval_s: float = 1.0, owner: bool = True) -> int:
    """Print a line a second until the session ends.

    A lost terminal or a closed pipe detaches and leaves the training running.

    Args:
        paths: the session.
        interval_s: seconds between two lines.
        owner: whether this is the command that started it: then Ctrl-C (or SIGTERM) stops it, and
            a second one at once. Whoever only looks detaches.

    Returns:
        The exit status: 0 done or detached, 1 the training failed, 130 stopped.
    """
    with _Signals(paths, owner) as signals, watching(paths):
        try:
            return _watch(paths, interval_s, signals)
        except OSError as error:
            if error.errno not in GONE:
                raise
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  nothing may write there again
        try:
            _tell(f"output closed; the run goes on: torchtop attach {reference(paths)} shows it")
        except OSError:
            silence()  # a terminal takes standard error with it
        return DETACHED


def _watch(paths: SessionPaths, interval_s: float, signals: _Signals) -> int:
    follower, output = Follower(paths.root), _Output()
    print(f"session {paths.id}  ({safe(paths.root)})", flush=True)
    if problem := describe(paths).get("problem"):
        _tell(f"{problem}: what was started, and how, is not known")
    due, told = time.monotonic(), set[str]()
    while True:
        snapshot = follower.poll()
        for hint in _hints(snapshot, told):
            print(f"{duration(snapshot.elapsed_s):>7}  hint: {hint}", flush=True)
        if signals.detached:
            _tell(f"detached; the run goes on. Watch it with: torchtop attach {reference(paths)}")
            return DETACHED
        if not snapshot.live:
            return farewell(paths, snapshot)
        print(line(snapshot), flush=True)
        due = max(due + interval_s, time.monotonic())
        while (left := due - time.monotonic()) > 0 and not signals.detached:
            output.wait(min(left, 0.2))


class _Output:
    """Standard output, whose other end may go away while nothing is written to it."""

    def __init__(self) -> None:
        self._poll = select.poll()
        with contextlib.suppress(OSError, ValueError):  # what is no file has no other end
            self._poll.register(sys.stdout.fileno(), 0)

    def wait(self, seconds: float) -> None:
        """Wait so long.

        Raises:
            OSError: the terminal has gone, or the reader of the pipe.
        """
        if self._poll.poll(seconds * 1000):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def _hints(snapshot: Snapshot, told: set[str]) -> list[str]:
    """The hints that are not in `told` yet; now they are."""
    events = (event for event in snapshot.events if event.get("kind") == "hint")
    fresh = [str(event.get("message")) for event in events]
    fresh = [hint for hint in dict.fromkeys(fresh) if hint not in told]
    told.update(fresh)
    return [safe(hint) for hint in fresh]


def line(snapshot: Snapshot) -> str:
    """How things stand, in one line."""
    head = f"{duration(snapshot.elapsed_s):>7}"
    analysis = snapshot.analysis
    if analysis is None or not analysis.get("steps"):
        return f"{head}  {_waiting(snapshot)}"
    if _between_launches(snapshot):
        ended = f"this launch has ended at step {1 + (analysis.get('step') or 0)}"
        return f"{head}  {ended}; waiting for the command's next, or its end"
    step_ms, speed = analysis.get("step_ms") or {}, analysis.get("throughput") or {}
    parts = [
        head,
        f"step {1 + (analysis.get('step') or 0)}{_of(analysis)}",
        f"{number(step_ms.get('mean'))} ms",
        f"{number(speed.get('samples_per_s'))} samples/s",
    ]
    if speed.get("tokens_per_s"):
        parts.append(f"{number(speed['tokens_per_s'])} tokens/s")
    phases = analysis.get("phases") or {}
    shares = [
        f"{short} {phases[name]['share']:.0%}"
        for name, short in _LETTERS.items()
        if (phases.get(name) or {}).get("share") is not None
    ]
    parts.append(" ".join(shares))
    parts.append(_verdict(analysis))
    parts += [f"[{safe(kind)}]" for kind in _critical(analysis)]
    if snapshot.status == "stopping":
        parts.append("stopping")
    return "  ".join(part for part in parts if part)


def _waiting(snapshot: Snapshot) -> str:
    if snapshot.status == "stopping":
        return "stopping"
    if not snapshot.ranks:
        command = snapshot.meta.get("source") == "command"
        return "nothing below the command trains yet" if command else "starting the ranks"
    trains = sum(1 for rank in snapshot.ranks if rank.marker)
    if not trains:
        return f"{rank_count(len(snapshot.ranks))} up, waiting for the first step"
    return f"{rank_count(trains, len(snapshot.ranks))} training, waiting for the first whole step"


def _between_launches(snapshot: Snapshot) -> bool:
    """Whether all that a command has launched so far is over: it may launch more."""
    is_command = snapshot.meta.get("source") == "command" and snapshot.status == "running"
    return is_command and bool(snapshot.ranks) and all(rank.over for rank in snapshot.ranks)


def _of(analysis: Mapping[str, Any]) -> str:
    progress = child(analysis, "progress")
    if progress.get("total_steps"):
        eta = numeric(progress.get("eta_s"))
        return f"/{progress['total_steps']}" + ("" if eta is None else f" ({duration(eta)} left)")
    epoch, batch, batches = (
        numeric(progress.get(name)) for name in ("epoch", "epoch_batch", "epoch_batches")
    )
    if epoch is None or batch is None:
        return ""
    of = "" if batches is None else f"/{batches:.0f}"
    return f" (epoch {epoch + 1:.0f}, batch {batch:.0f}{of})"


def _verdict(analysis: Mapping[str, Any]) -> str:
    verdict = analysis.get("verdict")
    if not verdict or analysis.get("warming_up"):
        told = safe((verdict or {}).get("headline") or "warming up")
        return told[:1].lower() + told[1:] if analysis.get("warming_up") else ""
    share = verdict.get("share")
    rank = "" if verdict.get("rank") is None else f" rank {verdict['rank']}"
    told = f"[{verdict['kind']}{rank}" + ("]" if share is None else f" {share:.0%}]")
    return f"{told} {safe(verdict.get('headline') or '')}".rstrip()


def _critical(analysis: Mapping[str, Any]) -> list[str]:
    """What stands beside the verdict and must not be missed."""
    found = children(analysis, "findings")
    return [str(f.get("kind")) for f in found if f.get("severity") == "critical"]


def farewell(paths: SessionPaths, snapshot: Snapshot) -> int:
    """Print how a session ended, and return the exit status that goes with it."""
    summary = saved_summary(paths)
    end = snapshot.exit or {}
    if summary:
        print(_closing(summary))
    if snapshot.status == "failed":
        for text in _failure(snapshot):
            print(safe(text))
    message = safe(end.get("message") or "")
    gone = snapshot.status in ("lost", "idle") and not paths.root.is_dir()
    status = "deleted" if gone else snapshot.status
    print(f"{status}: {message}" if message else status)
    if summary and not is_ephemeral(paths):  # the caller removes one of those now
        print(f"summary: {safe(paths.summary_text)}")
    sys.stdout.flush()
    if status in ("lost", "deleted"):
        _tell(_what_is_lost(paths))
    return {"done": 0, "stopped": STOPPED}.get(snapshot.status, 1)


def _failure(snapshot: Snapshot) -> Iterator[str]:
    """Where a run failed, its traceback, the last lines of its log, and what to try."""
    failure = failure_of(snapshot.exit or {}, snapshot.meta)
    yield from (f"  {line}" for line in failure.traceback[-30:])
    if failure.log:
        yield "  the last lines of its log:" if failure.traceback else "  its last lines:"
        yield from (f"    {line}" for line in failure.log)
    if failure.where:
        yield f"at: {failure.where}"
    yield from (f"try: {told}" for told in failure.advice)


def _what_is_lost(paths: SessionPaths) -> str:
    """What a session without an end has come to, and what can be done."""
    if not paths.root.is_dir():
        gone = f"{safe(paths.root)} was deleted, and its supervisor is gone"
        return unseen_run(paths) or gone
    gone = f"the supervisor is gone without a word; see {paths.root / 'supervisor.log'}"
    left = [process for process in all_leftovers(paths.root.parent) if is_of(process, paths)]
    return gone + (f"; it left {named(left)}: torchtop stop {paths.id}" if left else "")


def unseen_run(paths: SessionPaths) -> str:
    """What becomes of a run whose directory was deleted under it; empty where there is none."""
    if paths.root.is_dir():
        return ""
    run = next((run for run in unseen(paths.root.parent) if is_of(run, paths)), None)
    if run is None or run.supervisor is None:
        return ""
    return (
        f"{safe(paths.root)} was deleted; the run goes on, unseen (its supervisor has pid "
        f"{run.supervisor.pid}); to stop it: torchtop stop {paths.id}"
    )


def _closing(summary: Mapping[str, Any]) -> str:
    step, speed = summary["step_ms"], summary["throughput"]
    parts = [f"{summary['steps'] or 'no'} steps"]
    if step["mean"] is not None:
        parts.append(
            f"step {number(step['mean'])} ms (p50 {number(step['p50'])}, "
            f"p95 {number(step['p95'])}, p99 {number(step['p99'])})"
        )
    if speed["samples_per_s"] is not None:
        parts.append(f"{number(speed['samples_per_s'])} samples/s")
    verdict = summary.get("verdict")
    if verdict:
        parts.append(f"verdict {verdict['kind']}: {safe(verdict.get('headline') or '')}")
    return ", ".join(parts)


def _tell(message: str) -> None:
    print(f"torchtop: {one_line(message)}", file=sys.stderr, flush=True)


class _Signals:
    """While it is entered: Ctrl-C asks for a stop, or, of who only looks, detaches as a hang-up."""

    def __init__(self, paths: SessionPaths, owner: bool) -> None:
        self._paths = paths
        self._owner = owner
        self._asked = 0
        self.detached = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Signals:
        for number_ in (signal.SIGINT, signal.SIGTERM):
            self._before[number_] = signal.signal(number_, self._stop)
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._detach)
        return self

    def __exit__(self, *_: object) -> None:
        for number_, handler in self._before.items():
            signal.signal(number_, handler)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if not self._owner:
            self.detached = True
            return
        self._asked += 1
        request_stop(self._paths, "stop" if self._asked == 1 else "kill", "terminal")
        if self._asked == 1:
            _tell("stopping (again to kill at once)")

    def _detach(self, _number: int, _frame: FrameType | None) -> None:
        self.detached = True


def follow_until_end(root: Path, timeout_s: float) -> Snapshot:
    """Poll a session until it is no longer live, or for `timeout_s`; returns the last snapshot."""
    follower = Follower(root)
    until = time.monotonic() + timeout_s
    while True:
        snapshot = follower.poll()
        if not snapshot.live or time.monotonic() > until:
            return snapshot
        time.sleep(0.1)
