"""One run of a fault through the real program, recorded into a folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from score import trace
from torchtop_workloads.faults import Fault

ROOT = Path(__file__).resolve().parents[2]
_STOP_S = 30.0
_LEFT_OUT = ("stage", "requests")
"""What a recording does not need: copies of the program, and requests to stop."""


@dataclass(frozen=True)
class Plan:
    """How each fault is run.

    Attributes:
        device: cuda or cpu.
        seconds: with the fault.
        fixed_seconds: without its cause; 0 leaves that out.
        profile_steps: under torch.profiler; 0 leaves that out.
        options: further ``-o`` of the workload.
        limit_s: the whole run's, start-up and all.
    """

    device: str
    seconds: float
    fixed_seconds: float = 0.0
    profile_steps: int = 0
    options: tuple[str, ...] = ()
    limit_s: float = 150.0

    def schedule(self, fault: Fault) -> str:
        """For the fault's script."""
        parts = [f"fault:{self.seconds:g}s"]
        if self.fixed_seconds and fault.fix:
            parts.append(f"fixed:{self.fixed_seconds:g}s")
        if self.profile_steps:
            parts.append(f"profile:{self.profile_steps}")
        return ",".join(parts)


class Run:
    """A run under way; its ranks wait until `begin`.

    Args:
        fault: what to run.
        plan: how.
        folder: for the recording; what is there from an earlier run is replaced.

    Attributes:
        home: torchtop's state directory for this run alone, and its traces.
    """

    def __init__(self, fault: Fault, plan: Plan, folder: Path) -> None:
        self.fault = fault
        self.folder = folder
        self._plan = plan
        self._started_s = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.home = Path(tempfile.mkdtemp(prefix="torchtop-score-"))
        self._gate = self.home / "gate"
        self._log: IO[bytes] = (folder / "run.log").open("wb")
        path = [str(ROOT / part) for part in ("tui", "workloads")]
        path += filter(None, [os.environ.get("PYTHONPATH")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torchtop", *self._arguments()],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path),
                "TORCHTOP_HOME": str(self.home),
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def _arguments(self) -> list[str]:
        options = [
            f"schedule={self._plan.schedule(self.fault)}",
            f"profile_dir={self.home / 'traces'}",
            f"gate={self._gate}",
            *self._plan.options,
        ]
        given = [word for option in options for word in ("-o", option)]
        target = f"fault:{self.fault.code}"
        return ["run", "--no-tui", "--device", self._plan.device, *given, target]

    def begin(self) -> None:
        """Let the ranks go on."""
        self._gate.touch()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, but no longer than that; whether it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def finish(self) -> int | None:
        """Wait for its end, or make it end when its time is up, and keep what it has recorded.

        The traces stay where they are, for `keep_traces`.

        Returns:
            The program's exit status; None where it had to be ended.
        """
        left = self._started_s + self._plan.limit_s - time.monotonic()
        status = self._process.returncode if self.wait(max(1.0, left)) else None
        self.end()
        found = sorted((self.home / "sessions").glob("*"))
        if found:
            leave_out = shutil.ignore_patterns(*_LEFT_OUT)
            shutil.copytree(found[-1], self.folder / "session", ignore=leave_out)
        about = {"fault": self.fault.code, "status": status, **asdict(self._plan)}
        (self.folder / "run.json").write_text(json.dumps(about, indent=1))
        return status

    def end(self) -> None:
        """Make sure that nothing of it is left running. Ending twice is allowed."""
        for _ in range(2):  # asks for a stop, and then at once
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
                self.wait(_STOP_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()


def keep_traces(home: Path, folder: Path) -> None:
    """Write down what the traces of a run say, by rank, and remove them: they are large."""
    rows = {}
    for path in sorted((home / "traces").glob("trace-*.json*")):
        rank = path.name.split("-")[1].split(".")[0]
        rows[rank] = [step.as_json() for step in trace.analyse(trace.load(path))]
    if rows:
        (folder / "trace.json").write_text(json.dumps(rows))
    shutil.rmtree(home, ignore_errors=True)


def run_all(
    faults: Sequence[Fault], plan: Plan, out: Path, *, ahead: bool, budget_s: float
) -> list[str]:
    """Run faults one after the other.

    Args:
        faults: which.
        plan: how.
        out: a folder for each goes here.
        ahead: start the next one's processes while one still runs; they wait with torch loaded.
        budget_s: start none that might not be through by then.

    Returns:
        The codes of those that did not end well, or were not started.
    """
    began = time.monotonic()
    lasted = 0.0
    failed: list[str] = []
    coming: Run | None = None
    jobs: list[Future[None]] = []
    with ExitStack() as stack:
        later = stack.enter_context(ProcessPoolExecutor(2)) if ahead else None
        for index, fault in enumerate(faults):
            if time.monotonic() - began + lasted > budget_s:
                print(f"score: out of time before {fault.code}", file=sys.stderr)
                return failed + [left.code for left in faults[index:]]
            at = time.monotonic()
            run, coming = coming or _started(fault, plan, out, stack), None
            run.begin()
            if ahead and index + 1 < len(faults) and not run.wait(plan.seconds):
                coming = _started(faults[index + 1], plan, out, stack)
            status = run.finish()
            if later is not None:
                jobs.append(later.submit(keep_traces, run.home, run.folder))
            else:
                keep_traces(run.home, run.folder)
            lasted = max(lasted, time.monotonic() - at)
            took = f"{time.monotonic() - at:.0f} s"
            print(f"score: {fault.code} {fault.name}: status {status}, {took}", file=sys.stderr)
            if status != 0:
                failed.append(fault.code)
        for job in jobs:
            job.result()
    return failed


def _started(fault: Fault, plan: Plan, out: Path, stack: ExitStack) -> Run:
    run = Run(fault, plan, out / fault.code)
    stack.callback(shutil.rmtree, run.home, ignore_errors=True)
    stack.callback(run.end)
    return run
