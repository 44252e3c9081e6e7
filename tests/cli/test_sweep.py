"""Sweeps by their real command line: killed and resumed, stopped, and with a cell that fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from cli.command import environment, processes_of, torchtop

SCRIPT = """
import argparse, sys, time, torch
parser = argparse.ArgumentParser()
parser.add_argument("--fail", default="no")
parser.add_argument("--pause", type=float, default=0.0)
args = parser.parse_args()
if args.fail == "yes":
    raise ValueError("this one cannot work")
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), 0.1)
batch = torch.utils.data.TensorDataset(torch.ones(4000, 4))
for rows, in torch.utils.data.DataLoader(batch, batch_size=2):
    opt.zero_grad(); net(rows).sum().backward(); opt.step()
    time.sleep(args.pause)
"""
OWN = """
[workloads.tiny]
script = "tiny.py"
nproc = 1
options = { fail = "no", pause = 0.0 }
"""
ON_A_SCREEN = """
import sys
from torchtop.cli import main
from torchtop.commands import sweep
sweep.has_screen = lambda: True
def leave(paths, worker):
    assert worker.is_alive
    return 0
from torchtop.app.sweep import main as screen
screen.run_screen = leave
raise SystemExit(main(["sweep", *sys.argv[1:]]))
"""
"""The command with a screen that its user leaves at once."""
GPT = ["gpt2-small", "--device", "cpu", "--nproc", "1,2", "--steps", "12", "--warmup", "4"]
GPT += ["--repeats", "1", "-o", "batch=4", "-o", "layers=1", "-o", "width=16", "-o", "vocab=64"]
WAIT_S = 120.0

Start = Callable[..., "Sweep"]


class Sweep:
    """A sweep that runs in a process of its own, and its lines as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.out: IO[str] = process.stdout
        self.seen: list[str] = []

    def until(self, text: str) -> str:
        """The first line with a text in it."""
        for line in self.out:
            self.seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r} in:\n{''.join(self.seen)}")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "tiny.py").write_text(SCRIPT)
    (tmp_path / "torchtop.toml").write_text(OWN)
    (tmp_path / "torchtop.toml").chmod(0o600)
    return tmp_path


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> Sweep:
        process = subprocess.Popen(
            [sys.executable, "-m", "torchtop", "sweep", *words],
            cwd=home,
            env=environment(home, OMP_NUM_THREADS="1"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return Sweep(process)

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=30)
    torchtop("stop", "--leftovers", home=home, cwd=home)


def result(home: Path) -> dict[str, Any]:
    (file,) = home.glob("sweeps/*/sweep.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def sessions(home: Path) -> set[str]:
    return {path.name for path in home.glob("sessions/*")}


def test_a_sweep_that_is_killed_goes_on_where_it_was(home: Path, start: Start) -> None:
    # given a sweep whose second run has begun when it is killed, without a chance to clean up
    first = start(*GPT)
    first.until("2 ranks: run 1")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(timeout=30)
    before = sessions(home)
    assert len(before) == 2

    # when the same command is typed again
    done = torchtop("sweep", *GPT, "--json", home=home, cwd=home, OMP_NUM_THREADS="1")

    # then the session that went on by itself counts, and only what is missing is measured
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert table == result(home)
    assert "going on: 1 run is done" in done.stderr
    assert len(sessions(home)) == 3
    assert before < sessions(home)
    assert (table["status"], table["progress"]["runs_left"]) == ("done", 0)
    cells = {cell["label"]: cell for cell in table["cells"]}
    assert list(cells) == ["1 rank", "2 ranks", "1 rank, batch_per_gpu=2"]
    assert {run["session"] for cell in cells.values() for run in cell["runs"]} == sessions(home)
    for cell in cells.values():
        assert (cell["status"], len(cell["runs"])) == ("measured", 1)
        assert cell["samples_per_s"]["median"] > 0
        assert cell["tokens_per_s"]["median"] == pytest.approx(32 * cell["samples_per_s"]["median"])
        assert sum(cell["phases"].values()) == pytest.approx(cell["step_ms"]["median"])
        assert cell["versions"]["torch"]
    loss = cells["2 ranks"]["loss"]
    assert loss["reference"] == cells["1 rank, batch_per_gpu=2"]["id"]
    assert sum(part["points"] for part in loss["parts"]) == pytest.approx(loss["lost_points"])
    assert all(processes_of(name) == [] for name in sessions(home))

    listed = torchtop("sweep", "--list", home=home, cwd=home).stdout
    assert f"{table['id']}  done    3 runs  sweep gpt2-small" in listed

    # and now there is nothing to resume
    assert "nothing is left" in torchtop("sweep", "--resume", home=home, cwd=home).stdout

    # and each session says of which cell it is, and goes with the sweep
    metas = [json.loads(file.read_text()) for file in home.glob("sessions/*/session.json")]
    assert {meta["sweep"]["id"] for meta in metas} == {table["id"]}
    assert {meta["sweep"]["cell"] for meta in metas} == {cell["id"] for cell in cells.values()}
    gone = torchtop("rm", table["id"], home=home, cwd=home)
    assert gone.stdout == f"deleted {table['id']} and its 3 sessions\n"
    assert sessions(home) == set()


def test_a_cell_that_fails_is_told_and_the_rest_goes_on(home: Path) -> None:
    words = ["sweep", "tiny", "--yes", "--device", "cpu", "--nproc", "1", "--repeats", "1"]
    words += ["--steps", "30", "--warmup", "4", "-o", "fail=yes", "-o", "fail=no"]
    done = torchtop(*words, home=home, cwd=home)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "failed: fail=yes: rank 0 failed: ValueError: this one cannot work" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    failed, good = result(home)["cells"]
    assert (failed["status"], failed["samples_per_s"]) == ("failed", None)
    assert good["status"] == "measured"
    assert good["batch"] == 2


def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(home: Path, start: Start) -> None:
    # given a sweep in the middle of a long run
    sweep = start("tiny", "--yes", "--device", "cpu", "--nproc", "1", "-o", "pause=0.0,0.05")
    session = sweep.until("pause=0.05: run 1").split()[-1]
    until = time.monotonic() + WAIT_S
    while not list((home / "sessions" / session / "ranks").glob("0-*.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.05)
    # when
    os.kill(sweep.process.pid, signal.SIGINT)
    told = sweep.process.communicate(timeout=WAIT_S)[0]

    # then
    assert sweep.process.returncode == 130
    table = result(home)
    assert f"go on with: torchtop sweep --resume {table['id']}" in told
    assert table["status"] == "stopped"
    assert [len([r for r in cell["runs"] if r["measured"]]) for cell in table["cells"]] == [1, 0]
    assert processes_of(session) == []


def test_what_a_screen_began_goes_on_without_it_and_can_be_stopped(home: Path) -> None:
    words = ["tiny", "--yes", "--device", "cpu", "--nproc", "1", "-o", "pause=0.05"]
    left = subprocess.run(
        [sys.executable, "-c", ON_A_SCREEN, *words],
        cwd=home,
        env=environment(home, OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert left.returncode == 0, left.stderr
    (root,) = home.glob("sweeps/*")
    assert f"with: torchtop sweep --resume {root.name}" in left.stdout
    # the session that it begins has no terminal and no parent that waits for it
    session = wait_for(lambda: next(iter(sessions(home)), None), root)
    again = torchtop("sweep", "--resume", "--no-tui", home=home, cwd=home)
    assert again.returncode == 2
    assert "is being measured by another process" in again.stderr

    (root / "stop").touch()
    wait_for(lambda: (root / "sweep.json").is_file() and result(home)["status"] == "stopped", root)
    assert "tiny" in (root / "sweep.log").read_text()
    assert processes_of(session) == []
    assert not (root / "stop").exists()


def wait_for(condition: Callable[[], Any], root: Path) -> Any:
    until = time.monotonic() + WAIT_S
    while not (value := condition()):
        assert time.monotonic() < until, (root / "sweep.log").read_text()
        time.sleep(0.05)
    return value
