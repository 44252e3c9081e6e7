"""``sweep``: a table of sessions, measured one after the other, and what sets them apart."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from torchtop.app.format import rank_count
from torchtop.commands import sweep_text
from torchtop.commands.errors import UsageError, here, unusable_home
from torchtop.commands.run import has_screen
from torchtop.commands.sweep_plan import Machine, make_plan
from torchtop.commands.text import duration, number, safe, table
from torchtop.experiment import schedule
from torchtop.experiment.journal import Journal
from torchtop.experiment.plan import Cell, Plan
from torchtop.experiment.runner import Runner, created
from torchtop.session.locks import is_locked
from torchtop.session.paths import (
    SessionError,
    SessionPaths,
    list_sessions,
    liveness,
    read_json,
    write_json,
)
from torchtop.session.snapshot import Snapshot
from torchtop.session.sweeps import SweepPaths, find_sweep, list_sweeps, new_sweep, read_sweep

if TYPE_CHECKING:
    from torchtop.commands.sweep_worker import Worker

FAILED, STOPPED = 1, 130

_LINE_EVERY_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``sweep``."""
    add = parser.add_argument
    add("workload", nargs="?", metavar="WORKLOAD", help="a workload of the catalog")
    add("--gpus", metavar="1,2,4", help="numbers of GPUs (all)")
    add("--nproc", metavar="1,2", help="numbers of ranks on the CPU")
    add("--device", choices=("auto", "cuda", "cpu"), default="auto")
    add(
        "-o",
        "--option",
        action="append",
        metavar="KEY=A,B",
        help="an option and the values to compare",
    )
    add("--python", metavar="A,B", help="interpreters to compare")
    add("--repeats", type=_whole, default=5, metavar="N", help="runs of a cell, at most (5)")
    add("--spread", type=_share, default=0.02, metavar="2%", help="close enough, from 3 runs (2%%)")
    add("--steps", type=_whole, metavar="N", help="steps to measure in a run")
    add("--seconds", type=_seconds, default=10.0, metavar="S", help="or for so long (10)")
    add("--warmup", type=_several, default=20, metavar="N", help="steps to leave out before (20)")
    add("--resume", nargs="?", const="", metavar="ID", help="go on with a sweep (the latest)")
    add("--list", action="store_true", help="list the sweeps")
    add("--new", action="store_true", help="begin anew, though the same sweep is unfinished")
    add("--yes", action="store_true", help="trust this torchtop.toml's workload")
    add("--no-tui", action="store_true", help="lines, fit for a log")
    add("--json", action="store_true", help="print sweep.json at the end; lines go to stderr")


def run(args: argparse.Namespace) -> int:
    """Measure a sweep, or go on with one, and print its table."""
    if args.list:
        return _list(args)
    if not (args.no_tui or args.json) and has_screen():
        return _on_a_screen(args)
    paths, plan, machine = _open(args, args.words)
    out = sys.stderr if args.json else sys.stdout
    with Journal(paths) as journal:
        if args.resume is not None and (count := journal.forget_failures()):
            _say(f"trying again what failed: {count} cell{'' if count == 1 else 's'}", out)
        measured = measure(journal, plan, machine, out)
    return _conclude(args, paths, measured)


def _list(args: argparse.Namespace) -> int:
    """The sweeps, newest first."""
    if told := unusable_home():
        raise SessionError(told)
    found = []
    for paths in list_sweeps():
        with contextlib.suppress(SessionError):
            found.append(read_sweep(paths))
    if args.json:
        names = ("id", "workload", "status", "created_at", "updated_at", "progress")
        print(json.dumps([{name: sweep.get(name) for name in names} for sweep in found], indent=1))
        return 0
    rows = [
        (s["id"], s["status"], f"{s['progress']['runs_done']} runs", " ".join(s["command"]))
        for s in found
    ]
    print(table(("SWEEP", "STATUS", "DONE", "COMMAND"), rows) if rows else "there are no sweeps")
    return 0


def measure(journal: Journal, plan: Plan, machine: Machine, out: Any) -> dict[str, Any]:
    """Measure what is missing of a sweep, and tell how it goes on in lines.

    Returns:
        The table.
    """
    paths = journal.paths
    write_json(paths.plan, plan.to_json())
    for line in _warnings(journal):
        _say(f"torchtop: {line}", sys.stderr)
    runner = Runner(
        plan,
        journal,
        lambda cell, limit: machine.launch(cell, limit, plan, paths.id),
        Lines(out, paths, plan, journal),
        created(paths),
    )
    with _signals(runner):
        return runner.run()


def _on_a_screen(args: argparse.Namespace) -> int:
    """Measure in a process of its own, which outlives the terminal, and show its table."""
    from torchtop.app.sweep.main import run_screen
    from torchtop.commands.sweep_worker import Worker

    watched = find_sweep(args.resume or None) if args.resume is not None else None
    if watched is not None and is_locked(watched.lock):
        paths, worker = watched, Worker(watched)
    else:
        paths, plan, _ = _open(args, args.words)
        write_json(paths.plan, plan.to_json())
        worker = Worker(paths)
        worker.start(again=args.resume is not None)
    status = run_screen(paths, worker)
    return status or _leave(args, paths, worker)


def _leave(args: argparse.Namespace, paths: SweepPaths, worker: Worker) -> int:
    """Say on the terminal what became of a sweep whose screen was left."""
    with contextlib.suppress(OSError):
        if worker.is_alive:
            again = f"torchtop sweep --resume {paths.id}"
            _say(f"measuring goes on; look again, or stop it, with: {again}", sys.stdout)
            return 0
        if told := worker.trouble():
            raise UsageError(told, FAILED)
        return _conclude(args, paths, read_sweep(paths))
    return 0


def _open(args: argparse.Namespace, words: Sequence[str]) -> tuple[SweepPaths, Plan, Machine]:
    """The sweep to measure: one that is unfinished, or a new one."""
    if args.resume is not None:
        return _reopen(args)
    if args.workload is None:
        raise UsageError("sweep: name a workload (see: torchtop workloads), or give --resume")
    plan, machine = make_plan(args, words, here())
    machine.consent(plan, args.yes)
    if not args.new:
        for known in list_sweeps():
            if _is_unfinished(known) and _fingerprint(known) == plan.fingerprint:
                return known, plan, machine
    return new_sweep(plan.workload), plan, machine


def _reopen(args: argparse.Namespace) -> tuple[SweepPaths, Plan, Machine]:
    """A sweep by its id: its command, on this machine as it is today."""
    if args.workload is not None:
        raise UsageError("sweep --resume takes the id of a sweep, and no workload")
    paths = find_sweep(args.resume or None)
    plan, machine = reopened(paths)
    machine.consent(plan, args.yes)
    return paths, plan, machine


def reopened(paths: SweepPaths) -> tuple[Plan, Machine]:
    """The plan of a sweep on this machine as it is today.

    Raises:
        UsageError, SessionError, LaunchError: its command asks for something else today, or for
            nothing that there is.
    """
    from torchtop.cli import parse

    old = Plan.load(paths.plan)
    plan, machine = make_plan(parse(list(old.command)), old.command, Path(old.cwd))
    if plan.fingerprint != old.fingerprint:
        raise UsageError(
            f"{paths.id} was another question than its command asks today (its defaults have "
            "changed): start it anew"
        )
    return plan, machine


def _is_unfinished(paths: SweepPaths) -> bool:
    try:
        return bool(read_sweep(paths)["status"] != "done")
    except SessionError:
        return paths.plan.is_file()


def _fingerprint(paths: SweepPaths) -> str | None:
    try:
        return Plan.load(paths.plan).fingerprint
    except SessionError:
        return None


def _warnings(journal: Journal) -> list[str]:
    """What else runs on this machine and so spoils the numbers."""
    own = {paths.id for _, paths in journal.unfinished()}
    live = [p for p in list_sessions()[:50] if liveness(p) == "live" and p.id not in own]
    return [f"{paths.id} is running too: the numbers will not be of this alone" for paths in live]


def _conclude(args: argparse.Namespace, paths: SweepPaths, measured: dict[str, Any]) -> int:
    failed = any(cell["status"] == "failed" for cell in measured["cells"])
    if args.json:
        print(json.dumps(read_json(paths.result) or measured, indent=1))
    else:
        print("\n" + "\n".join(sweep_text.lines(measured)))
    sys.stdout.flush()
    if measured["status"] != "done":
        _say(f"torchtop: go on with: torchtop sweep --resume {paths.id}", sys.stderr)
        return STOPPED
    return FAILED if failed else 0


class Lines:
    """Tells how a sweep goes on, in lines. See `torchtop.experiment.runner.Watcher`.

    Args:
        out: where they go.
        paths: the sweep.
        plan: what is measured.
        journal: what has been.
    """

    def __init__(self, out: Any, paths: SweepPaths, plan: Plan, journal: Journal) -> None:
        self._out = out
        self._due_s = 0.0
        cells = [cell for cell in plan.cells if cell.place.skip is None]
        left = schedule.runs_left(plan, journal.runs)
        _say(sweep_text.begun(paths.id, paths.root, len(cells), left), out)
        if done := sum(len(schedule.measured(made)) for made in journal.runs.values()):
            _say(f"going on: {done} run{' is' if done == 1 else 's are'} done", out)
        for cell in plan.cells:
            if cell.place.skip is not None:
                _say(f"skipped: {safe(cell.label)}: {safe(cell.place.skip)}", out)

    def begins(self, cell: Cell, number: int, session: SessionPaths) -> None:
        """See `Watcher`."""
        self._due_s = time.monotonic() + _LINE_EVERY_S
        _say(f"{safe(cell.label)}: run {number}, session {session.id}", self._out)

    def goes_on(self, cell: Cell, snapshot: Snapshot) -> None:
        """See `Watcher`."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + _LINE_EVERY_S
        _say(f"  {duration(snapshot.elapsed_s)}  {_progress(snapshot)}", self._out)

    def ended(self, cell: Cell, run: dict[str, Any], table: dict[str, Any]) -> None:
        """See `Watcher`."""
        row = next(row for row in table["cells"] if row["id"] == cell.id)
        _say(sweep_text.ended(row, run, table["progress"]), self._out)


def _progress(snapshot: Snapshot) -> str:
    analysis = snapshot.analysis
    if analysis is None or not analysis.get("steps"):
        return "starting" if not snapshot.ranks else f"{rank_count(len(snapshot.ranks))} up"
    total = (analysis.get("progress") or {}).get("total_steps")
    step = f"step {analysis['steps']}" + (f"/{total}" if total else "")
    return f"{step}  {number((analysis.get('step_ms') or {}).get('mean'))} ms"


def _say(line: str, out: Any) -> None:
    """Print a line; a terminal that is gone does not end the measuring."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=out, flush=True)


@contextlib.contextmanager
def _signals(runner: Runner) -> Iterator[None]:
    """Ctrl-C keeps what was measured; the loss of the terminal does not end the sweep."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        told = "once more: at once" if not runner.is_stopping else "stopping at once"
        runner.stop()
        _say(f"torchtop: stopping; what was measured is kept ({told})", sys.stderr)

    before = {number_: signal.signal(number_, stop) for number_ in (signal.SIGINT, signal.SIGTERM)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number_, handler in before.items():
            signal.signal(number_, handler)


def _whole(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"give a whole number of at least 1, not {text!r}")
    return int(text)


def _several(text: str) -> int:
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"give a whole number of at least 2, not {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"give a share such as 2% or 0.02, not {text!r}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text.rstrip("s"))
    except ValueError:
        value = 0.0
    if not 0.1 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"give seconds, such as 10, not {text!r}")
    return value
