"""However a command ends or is ended, nothing that it has started stays, and no training is cut."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.supervised import PROLOGUE, Run, wait_until
from probe.staged import bare_python
from torchtop.launch.spec import LaunchSpec
from torchtop.launch.start import start_session
from torchtop.session.paths import request_stop

pytest.importorskip("torch")

Start = Callable[..., Run]

FOREVER = """
import torch.distributed as dist
dist.init_process_group("gloo")
import torch
up()
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.05)
"""

ALONE = """
import torch
weight = torch.ones(1, requires_grad=True)
while not (root / "enough").exists():
    (weight * 2).sum().backward()
    up()
    time.sleep(0.02)
(root / "finished").touch()
"""

TORCHRUN = f"{bare_python()} -m torch.distributed.run --nproc-per-node 2 train.py"


@pytest.fixture
def start(state_home: Path, tmp_path: Path) -> Iterator[Start]:
    """Start shell scripts as commands; whatever a test leaves running is ended."""
    started: list[Run] = []

    def run(shell: str, train: str = FOREVER, **fields: object) -> Run:
        prologue = PROLOGUE.replace('os.environ["RANK"]', 'os.environ.get("RANK", "0")')
        (tmp_path / "train.py").write_text(prologue + train)
        spec = LaunchSpec(
            "test",
            "sh",
            "command",
            "sh",
            ("-c", shell),
            cwd=str(tmp_path),
            shutdown_timeout_s=3.0,
            **fields,  # type: ignore[arg-type]
        )
        started.append(Run(start_session(spec)))
        return started[-1]

    yield run
    for session in started:
        session.clean()


@pytest.mark.parametrize(
    "shell",
    [
        f"{TORCHRUN}; {TORCHRUN}",  # what comes next must not begin
        f"trap 'echo told' TERM; {TORCHRUN}",
        f"trap '' TERM; {TORCHRUN}",
    ],
)
def test_a_stop_ends_shells_and_launchers_in_order(start: Start, shell: str) -> None:
    session = start(shell)
    session.started(2)

    request_stop(session.paths, "stop", "test")
    events = session.ended()

    assert session.exit["cause"] == "stopped"
    assert session.living() == []
    launches = {e["process_pid"] for e in events if e["kind"] == "process" and e["role"] == "rank"}
    assert len(launches) == 2


def test_a_stop_reaches_a_process_that_a_shell_has_started(start: Start) -> None:
    # given a training that saves on SIGTERM, below a shell that would not pass it on
    save = 'signal.signal(signal.SIGTERM, lambda *_: ((root / "saved").touch(), sys.exit(0)))\n'
    session = start(f"trap : TERM; {bare_python()} train.py; true", save + ALONE)
    session.started(1)

    request_stop(session.paths, "stop", "test")
    session.ended()

    assert (session.paths.root / "saved").exists()
    assert session.events("escalated") == []
    assert session.living() == []


def test_a_training_in_the_background_goes_on_when_its_shell_has_ended(start: Start) -> None:
    # given a script that starts one and ends
    session = start(f"{bare_python()} train.py & sleep 1000 & true", ALONE)
    session.started(1)
    agent = session.pids("agent")[0]
    wait_until(lambda: not Path(f"/proc/{agent}").exists(), "the shell has ended")
    # when it is done
    (session.paths.root / "enough").touch()
    session.ended()
    # then it came to its end, and nothing is left
    assert (session.paths.root / "finished").exists()
    assert session.exit["cause"] == "completed"
    assert session.living() == []


def test_a_killed_supervisor_leaves_nothing_of_a_command(start: Start) -> None:
    session = start(f"{TORCHRUN}; true")
    session.started(2)

    os.kill(session.supervisor, signal.SIGKILL)

    wait_until(lambda: session.living() == [], "all of it has ended")


def test_a_killed_shell_is_told_and_its_ranks_are_ended(start: Start) -> None:
    session = start(f"{TORCHRUN}; true")
    session.started(2)

    os.kill(session.pids("agent")[0], signal.SIGKILL)
    session.ended()

    assert (session.exit["cause"], session.exit["signal"]) == ("signal", "SIGKILL")
    assert session.exit["message"] == "the command was ended by SIGKILL"
    assert session.living() == []
