"""The kernel kills a rank for want of host memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from faults.scripts import Start
from launch.supervised import PROLOGUE, Run
from torchtop.launch.cgroup import hierarchies
from torchtop.session.paths import SessionPaths

LIMIT_BYTES = 1_200_000_000

START = """
import json, sys
from torchtop.launch.spec import LaunchSpec
from torchtop.launch.start import start_session
print(start_session(LaunchSpec.from_json(sys.argv[1])).root)
"""

GREEDY = """
up()
while rank == 0 or len(list(root.glob("up-*"))) < 2:
    time.sleep(0.05)
taken = []
while True:
    taken.append(bytearray(os.urandom(1 << 20) * 8))
"""


@pytest.fixture
def small(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A control group with little memory, of either version."""
    folder = next(filter(None, map(limited, candidates())), None)
    if folder is None:
        pytest.skip("no control group with a memory limit can be had here")
    yield folder
    until = time.monotonic() + 10.0
    while folder.exists() and time.monotonic() < until:
        with suppress(OSError):
            folder.rmdir()
        time.sleep(0.05)


def candidates() -> Iterator[tuple[Path, str]]:
    for hierarchy in hierarchies():
        folder = hierarchy.folder / f"test-memory-{os.getpid()}"
        if hierarchy.controllers is None:
            yield folder, "memory.max"
        elif "memory" in hierarchy.controllers:
            yield folder, "memory.limit_in_bytes"


def limited(candidate: tuple[Path, str]) -> Path | None:
    folder, limit = candidate
    try:
        folder.mkdir()
    except OSError:
        return None
    try:
        (folder / limit).write_text(str(LIMIT_BYTES))
    except OSError:
        folder.rmdir()
        return None
    return folder


def launch_in(group: Path, folder: Path) -> Run:
    """Start two ranks, of which one wants ever more, in a control group."""
    script = folder / "train.py"
    script.write_text(PROLOGUE + GREEDY)
    spec = {"name": "t", "workload": "t", "source": "script", "target": str(script), "nproc": 2}
    spec |= {"cwd": str(folder), "python": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", START, json.dumps(spec)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        preexec_fn=lambda: (group / "cgroup.procs").write_text("0"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Run(SessionPaths(Path(done.stdout.strip())))


@pytest.mark.fault(15, "a rank is killed for want of memory", "host out of memory")
def test_a_rank_that_the_kernel_killed_for_memory_is_told_as_such(
    small: Path, state_home: Path, tmp_path: Path
) -> None:
    session = launch_in(small, tmp_path)
    try:
        session.ended()
        exit = session.exit
        assert (exit["cause"], exit["rank"], exit["signal"]) == ("host_out_of_memory", 1, "SIGKILL")
        assert "the host ran out of memory" in exit["message"]
        assert "the limit of its control group is 1.2 GB" in exit["message"]
        assert session.living() == []
    finally:
        session.clean()


@pytest.mark.fault(15, "a rank is killed for want of memory", "host out of memory")
def test_a_rank_that_cannot_get_memory_is_told_as_such(run: Start) -> None:
    session = run("up()\nbytearray(1 << 60)", nproc=1)
    session.ended()
    assert session.exit["cause"] == "host_out_of_memory"
    assert session.exit["message"] == "rank 0 ran out of host memory: MemoryError"
