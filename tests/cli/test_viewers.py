"""Viewers of a real run that come and go, in every way: the run never notices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.pty_child import Child
from cli.command import environment, torchtop
from torchtop.session.paths import SessionPaths
from torchtop.session.tail import Tail

LIMIT_S = 60.0
VIEWER = "import sys; from torchtop.cli import main; raise SystemExit(main(sys.argv[1:]))"
SHOWN = b"steps/s"
ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"
TRAIN = """
import time, torch
torch.set_num_threads(1)
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), 0.1)
while True:
    net(torch.ones(2, 4)).sum().backward(); opt.step(); opt.zero_grad()
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


class Run:
    """A run of two ranks that trains without end."""

    def __init__(self, home: Path, session: str) -> None:
        self.home, self.id = home, session
        self.paths = SessionPaths(home / "sessions" / session)

    def steps(self) -> int:
        """How far it has come."""
        told = [r.get("steps") or 0 for r in Tail(self.paths.analysis, 1 << 16).poll()]
        return max(told, default=0)

    def row(self) -> dict[str, Any]:
        """What ``ls`` says of it."""
        listed = torchtop("ls", "--json", home=self.home, cwd=self.home)
        rows: list[dict[str, Any]] = json.loads(listed.stdout)["sessions"]
        return next(row for row in rows if row["id"] == self.id)

    def goes_on(self) -> None:
        """Wait until both ranks, the same as ever, have come further."""
        before = self.steps()
        wait_for(lambda: self.steps() > before, "further steps")
        assert self.row()["status"] == "running"


def wait_for(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def run(home: Path) -> Iterator[Run]:
    (home / "train.py").write_text(TRAIN)
    words = ("run", "--detach", "--device", "cpu", "--nproc", "2", "train.py")
    started = torchtop(*words, home=home, cwd=home)
    assert started.returncode == 0, started.stderr
    made = Run(home, started.stdout.strip())
    wait_for(lambda: made.steps() > 0, "steps")
    yield made
    torchtop("stop", "--kill", made.id, home=home, cwd=home)


@pytest.fixture
def view(run: Run) -> Iterator[Callable[..., Child]]:
    """Start the real command line in a pseudo-terminal, and wait for a text."""
    children: list[Child] = []

    def viewing(*words: str, until: bytes = SHOWN) -> Child:
        child = Child(VIEWER, *(words or ("attach", run.id)), **environment(run.home))
        children.append(child)
        assert child.read(LIMIT_S, until=until), child.seen[-2000:]
        return child

    yield viewing
    for child in children:
        child.close()


@pytest.mark.fault(1, "SIGKILL the viewer", "the run continues; attach works")
def test_a_killed_viewer_leaves_the_run_and_another_can_attach(
    run: Run, view: Callable[..., Child]
) -> None:
    child = view()
    assert run.row()["state"] == "live"
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(LIMIT_S) == -signal.SIGKILL
    run.goes_on()
    assert run.row()["state"] == "detached"
    view()
    assert run.row()["state"] == "live"


def soonest_s(attempt: Callable[[], float]) -> float:
    """The best of three: a busy machine can only make it later."""
    took = [attempt()]
    while took[-1] > 1.0 and len(took) < 3:
        took.append(attempt())
    return min(took)


@pytest.mark.fault(10, "the terminal is closed", "exit 0 within 1 s; the run continues")
@pytest.mark.parametrize("words", [("attach",), ("attach", "--no-tui")])
def test_a_closed_terminal_is_an_orderly_end_within_a_second(
    run: Run, view: Callable[..., Child], words: tuple[str, ...]
) -> None:
    def close() -> float:
        child = view(*words, run.id, until=SHOWN if len(words) == 1 else b" ms ")
        began = time.monotonic()
        child.hang_up()
        assert child.wait(LIMIT_S) == 0
        return time.monotonic() - began

    assert soonest_s(close) <= 1.0
    run.goes_on()


class Apart:
    """The command line on a terminal that is not its controlling one: closing it sends no signal.

    As under ``nohup``, or below a shell that has ended before.
    """

    def __init__(self, home: Path, *words: str) -> None:
        self.master, slave = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torchtop", *words],
            cwd=home,
            env=environment(home, TERM="xterm-256color"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def read_until(self, text: bytes) -> None:
        seen, until = b"", time.monotonic() + LIMIT_S
        while text not in seen:
            assert time.monotonic() < until, seen[-2000:]
            seen += os.read(self.master, 1 << 16)

    def close(self) -> tuple[int, float, float]:
        """Exit status, seconds until it ended, and processor time that this took."""
        before, began = self._cpu_s(), time.monotonic()
        os.close(self.master)
        used = before
        while self.process.poll() is None:
            assert time.monotonic() - began < LIMIT_S
            used = max(used, self._cpu_s())
            time.sleep(0.01)
        return self.process.returncode, time.monotonic() - began, used - before

    def _cpu_s(self) -> float:
        stat = Path(f"/proc/{self.process.pid}/stat")
        words = stat.read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.fault(10, "stdin ends without SIGHUP", "exit 0 within 1 s; no spin; run continues")
@pytest.mark.parametrize(
    ("words", "text"), [(("attach",), SHOWN), (("attach", "--no-tui"), b" ms "), (("attach",), b"")]
)
def test_an_end_of_input_without_a_signal_is_one_too(
    run: Run, words: tuple[str, ...], text: bytes
) -> None:
    def close() -> float:
        apart = Apart(run.home, *words, run.id)
        apart.read_until(text)  # or at once, before there is a screen
        status, took, used = apart.close()
        assert status == 0
        assert text == b"" or used < 1.0
        return took if text else 0.0

    assert soonest_s(close) <= 1.0
    run.goes_on()


@pytest.mark.fault(10, "the terminal of a run is closed", "exit 0; the run continues")
def test_a_run_in_plain_lines_goes_on_without_its_terminal(run: Run) -> None:
    words = ("run", "--no-tui", "--device", "cpu", "--nproc", "1", "--name", "plain", "train.py")
    apart = Apart(run.home, *words)
    apart.read_until(b" up, waiting")
    assert apart.close()[0] == 0
    rows = json.loads(torchtop("ls", "--json", home=run.home, cwd=run.home).stdout)["sessions"]
    (row,) = (row for row in rows if row["name"] == "plain")
    assert (row["status"], row["state"]) == ("running", "detached")
    assert torchtop("stop", "--kill", row["id"], home=run.home, cwd=run.home).returncode == 0


def test_ctrl_c_on_attach_detaches_and_stops_nothing(run: Run, view: Callable[..., Child]) -> None:
    # given somebody who watches as plain lines in a terminal
    child = view("attach", "--no-tui", run.id, until=b" ms ")
    # when they press Ctrl-C
    os.write(child.fd, b"\x03")
    # then they leave with status 0, told that the run goes on
    assert child.wait(LIMIT_S) == 0
    assert b"detached; the run goes on" in child.seen
    assert b"stopping" not in child.seen
    run.goes_on()
    assert not [e for e in Tail(run.paths.node().events).poll() if e["kind"] == "stop"]


def test_the_screen_is_left_as_it_was_found(run: Run, view: Callable[..., Child]) -> None:
    child = view()
    assert child.seen.count(ENTERED) == 1
    os.write(child.fd, b"q")
    assert child.read(LIMIT_S, until=b"detach: leave")
    os.write(child.fd, b"\r")
    assert child.wait(LIMIT_S) == 0
    assert child.seen.rindex(LEFT) > child.seen.rindex(ENTERED)
    assert b"goes on" in child.seen.rpartition(LEFT)[2]
