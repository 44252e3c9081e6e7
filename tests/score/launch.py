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
        share_gpu: two ranks on one GPU.
    """

    device: str
    seconds: float
    fixed_seconds: float = 0.0
    profile_steps: int = 0
    options: tuple[str, ...] = ()
    limit_s: float = 150.0
    share_gpu: bool = False

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
                **({"TORCHTOP_SHARE_GPUS": "1"} if self._plan.share_gpu else {}),
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
        ranks = ["--nproc", "2"] if self._plan.share_gpu else []
        return ["run", "--no-tui", "--device", self._plan.device, *ranks, *given, target]

    def begin(self) -> None:
        """Let the ranks go on."""
        self._gate.touch()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, but no longer than that; whether it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def wait_done(self) -> None:
        """Wait until it needs the device no longer: it may still write its trace, and end."""
        done = self._gate.with_name(self._gate.name + ".done")
        while not done.exists() and self._left_s() > 0 and not self.wait(0.1):
            pass

    def _left_s(self) -> float:
        return self._started_s + self._plan.limit_s - time.monotonic()

    def finish(self) -> int | None:
        """Wait for its end, or make it end when its time is up, and keep what it has recorded.

        The traces stay where they are, for `keep_traces`.

        Returns:
            The program's exit status; None where it had to be ended.
        """
        status = self._process.returncode if self.wait(max(1.0, self._left_s())) else None
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


class Series:
    """Runs of faults, one after the other.

    Args:
        plan: how each is run.
        out: a folder for each goes here.
        ahead: overlap them: the next one's processes start while one still runs, and wait with
            torch loaded; they go on while that one writes its trace and ends.
        budget_s: start none that might not be through by then.

    Attributes:
        failed: the codes of those that did not end well, or were not started.
    """

    def __init__(self, plan: Plan, out: Path, *, ahead: bool, budget_s: float) -> None:
        self.failed: list[str] = []
        self._plan = plan
        self._out = out
        self._ahead = ahead
        self._budget_s = budget_s
        self._began_s = time.monotonic()
        self._stack = ExitStack()
        self._jobs: list[Future[None]] = []

    def run(self, faults: Sequence[Fault]) -> None:
        """Run them; nothing is left running, whatever happens."""
        with self._stack:
            pool = self._stack.enter_context(ProcessPoolExecutor(2)) if self._ahead else None
            self._run(list(faults), pool)
            for job in self._jobs:
                job.result()

    def _run(self, faults: list[Fault], pool: ProcessPoolExecutor | None) -> None:
        ending: Run | None = None
        coming: Run | None = None
        longest = 0.0
        while faults:
            if self._spent_s() + longest >= self._budget_s:
                print(f"score: out of time before {faults[0].code}", file=sys.stderr)
                self.failed += [fault.code for fault in faults]
                break
            began = self._spent_s()
            run, coming = coming or self._start(faults[0]), None
            del faults[0]
            run.begin()
            self._finish(ending, pool)
            if self._ahead and faults and not run.wait(self._plan.seconds):
                coming = self._start(faults[0])
            run.wait_done()
            ending = run
            if not self._ahead:
                self._finish(ending, pool)
                ending = None
            longest = max(longest, self._spent_s() - began)
        self._finish(ending, pool)

    def _spent_s(self) -> float:
        return time.monotonic() - self._began_s

    def _start(self, fault: Fault) -> Run:
        run = Run(fault, self._plan, self._out / fault.code)
        self._stack.callback(shutil.rmtree, run.home, ignore_errors=True)
        self._stack.callback(run.end)
        return run

    def _finish(self, run: Run | None, pool: ProcessPoolExecutor | None) -> None:
        if run is None:
            return
        status = run.finish()
        if pool is None:
            keep_traces(run.home, run.folder)
        else:
            self._jobs.append(pool.submit(keep_traces, run.home, run.folder))
        told = f"{run.fault.code} {run.fault.name}: status {status} at {self._spent_s():.0f} s"
        print(f"score: {told}", file=sys.stderr, flush=True)
        if status != 0:
            self.failed.append(run.fault.code)
