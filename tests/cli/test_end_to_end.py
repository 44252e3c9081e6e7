"""The main job, by its real command line: launch, watch, diagnose, save."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.command import environment, processes_of, torchtop
from torchtop.session.records import PHASES

WORDS = ["run", "--no-tui", "--device", "cpu", "--nproc", "2", "--steps", "30"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run(home: Path) -> subprocess.CompletedProcess[str]:
    return torchtop(
        *WORDS,
        "resnet50-cifar10",
        "-o",
        "batch=16",
        "-o",
        "synthetic_size=2000",
        home=home,
        cwd=home,
        XDG_CACHE_HOME=str(home / "cache"),
    )


@pytest.fixture(scope="module")
def summary(run: subprocess.CompletedProcess[str], home: Path) -> Any:
    return json.loads(torchtop("show", "--json", home=home, cwd=home).stdout)


def test_it_ends_well_and_prints_a_line_a_second(
    run: subprocess.CompletedProcess[str], summary: Any
) -> None:
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line for line in run.stdout.splitlines() if " step " in line and "/30" in line]
    assert lines
    for part in (" ms ", "samples/s", "data ", "fwd ", "bwd ", "comm ", "opt "):
        assert part in lines[-1]
    assert len(run.stdout.splitlines()) >= 0.5 * summary["wall_s"]


def test_the_summary_has_its_shape(summary: Any) -> None:
    assert summary["status"] == "done"
    assert summary["exit"]["cause"] == "completed"
    assert (summary["steps"], summary["world_size"], summary["device"]) == (30, 2, "cpu")
    assert summary["synthetic_data"] is True
    assert summary["options"]["batch"] in ("16", 16)
    assert summary["throughput"]["samples_per_s"] > 0
    assert all(summary["step_ms"][name] > 0 for name in ("mean", "p50", "p95", "p99"))
    assert all(summary["versions"][name] for name in ("torchtop", "python", "torch"))
    assert list(summary["phases"]) == list(PHASES)
    assert sum(phase["share"] for phase in summary["phases"].values()) == pytest.approx(1, abs=0.01)
    assert summary["loss"]["last"] > 0
    assert summary["gpus"] == []


def test_the_phases_of_each_rank_sum_to_the_hosts_own_step(summary: Any) -> None:
    assert [rank["rank"] for rank in summary["ranks"]] == [0, 1]
    for rank in summary["ranks"]:
        phases = sum(phase["ms"] for phase in rank["phases"].values())
        assert phases == pytest.approx(rank["host_step_ms"], rel=0.01)
        assert rank["loader"]["workers"] == 4


def test_nothing_is_left(summary: Any) -> None:
    assert processes_of(summary["id"]) == []


def test_the_readable_summary_and_the_list_name_it(summary: Any, home: Path) -> None:
    text = torchtop("show", home=home, cwd=home).stdout
    rows = json.loads(torchtop("ls", "--json", home=home, cwd=home).stdout)["sessions"]

    assert "synthetic" in text
    assert "| samples/s |" in text
    assert [row["id"] for row in rows] == [summary["id"]]
    assert rows[0]["status"] == "done"
    assert rows[0]["pids"]["supervisor"] is None


def test_its_analysis_can_be_made_again(summary: Any, home: Path) -> None:
    again = torchtop("analyse", summary["id"], home=home, cwd=home)
    fresh = json.loads(torchtop("show", "--json", home=home, cwd=home).stdout)

    assert again.returncode == 0, again.stderr
    assert fresh["steps"] == summary["steps"]
    assert fresh["phases"] == summary["phases"]


@pytest.fixture
def detached(home: Path) -> Iterator[str]:
    """A run without end that nobody watches, on one rank."""
    script = home / "forever.py"
    script.write_text(
        "import time, torch\n"
        "net = torch.nn.Linear(4, 4)\n"
        "opt = torch.optim.SGD(net.parameters(), 0.1)\n"
        "while True:\n"
        "    net(torch.ones(2, 4)).sum().backward(); opt.step(); opt.zero_grad()\n"
        "    time.sleep(0.02)\n"
    )
    words = ("run", "--detach", "--device", "cpu", "--nproc", "1", str(script))
    started = torchtop(*words, home=home, cwd=home)
    assert started.returncode == 0, started.stderr
    session = started.stdout.strip()
    yield session
    torchtop("stop", "--kill", session, home=home, cwd=home)


def test_a_detached_run_is_watched_and_stopped_from_elsewhere(detached: str, home: Path) -> None:
    # Given a run that trains, and a watcher that goes away
    watcher = subprocess.Popen(
        [sys.executable, "-m", "torchtop", "attach", "--no-tui", detached],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    _wait_for_a_step(watcher)
    watcher.stdout.close()

    # Then the watcher leaves quietly, and the run goes on
    assert watcher.wait(30) == 0
    rows = json.loads(torchtop("ls", "--json", home=home, cwd=home).stdout)["sessions"]
    row = next(row for row in rows if row["id"] == detached)
    assert row["status"] == "running"
    assert all(row["pids"][role] for role in ("supervisor", "sampler", "analyst", "agent"))
    assert list(row["pids"]["ranks"]) == ["0"]

    # When it is stopped, nothing of it is left
    stopped = torchtop("stop", detached, home=home, cwd=home)
    assert stopped.returncode == 0, stopped.stderr
    assert stopped.stdout.startswith("stopped")
    assert processes_of(detached) == []
    assert torchtop("stop", detached, home=home, cwd=home).returncode == 2


def _wait_for_a_step(watcher: subprocess.Popen[str]) -> None:
    assert watcher.stdout is not None
    until = time.monotonic() + 60
    for line in watcher.stdout:
        if " step " in line and " ms " in line:
            return
        assert time.monotonic() < until, line
    raise AssertionError("the watcher ended")


def test_ctrl_c_stops_a_watched_run_and_says_130(home: Path) -> None:
    script = home / "forever2.py"
    script.write_text("import time\nprint('up', flush=True)\nwhile True: time.sleep(0.1)\n")
    words = ["run", "--no-tui", "--device", "cpu", "--nproc", "1", str(script)]
    run = subprocess.Popen(
        [sys.executable, "-m", "torchtop", *words],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    session = run.stdout.readline().split()[1]
    for line in run.stdout:
        if " up, waiting" in line:
            break

    run.send_signal(2)

    out, err = run.communicate(timeout=60)
    assert run.returncode == 130, out + err
    assert "stopping" in err
    assert processes_of(session) == []


def test_a_script_that_fails_gives_status_1_and_its_traceback(home: Path) -> None:
    # given a script that fails below a call that torchtop has wrapped
    script = home / "fails.py"
    script.write_text(
        "import torch\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 9\n"
        "    def __getitem__(self, i): return self.load(i)\n"
        "    def load(self, i): raise FileNotFoundError(2, 'no such thing')\n"
        "print('begins')\n"
        "for batch in torch.utils.data.DataLoader(Data()): pass\n"
    )
    words = ("run", "--no-tui", "--device", "cpu", "--nproc", "1", str(script))

    done = torchtop(*words, home=home, cwd=home)

    # then it is told where and what, and what to try, without torchtop's own part of it
    assert done.returncode == 1
    assert "FileNotFoundError: [Errno 2] no such thing" in done.stdout
    assert "at: fails.py:5 in load" in done.stdout
    assert f"try: paths that do not begin with / start at {home}" in done.stdout
    assert "failed: rank 0 failed: FileNotFoundError" in done.stdout
    assert "_torchtop" not in done.stdout and "rank.py" not in done.stdout
    # and the summary says the same
    summary = json.loads(torchtop("show", "--json", home=home, cwd=home).stdout)
    assert summary["failure"]["where"] == "fails.py:5 in load"
    assert "_torchtop" not in str(summary["failure"])
    shown = torchtop("show", home=home, cwd=home).stdout
    assert "**Failed:** rank 0 failed: FileNotFoundError" in shown and "in load" in shown
