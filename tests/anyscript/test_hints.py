"""What a user should know of a run and would not see is told, once, and in time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anyscript.commanded import told
from launch.supervised import Run, wait_until
from probe.staged import bare_python
from torchtop.launch.hints import Hints
from torchtop.launch.journal import Journal
from torchtop.launch.spec import LaunchSpec
from torchtop.launch.start import start_session
from torchtop.session.paths import SessionPaths, request_stop
from torchtop.session.records import Appender
from torchtop.session.tail import Tail

ALONE = """
import torch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(30):
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def paths(tmp_path: Path) -> SessionPaths:
    for name in ("ranks", "stage"):
        (tmp_path / name).mkdir()
    return SessionPaths(tmp_path)


@pytest.fixture
def hints(paths: SessionPaths) -> Iterator[Callable[..., Hints]]:
    events: list[Appender] = []

    def made(**fields: Any) -> Hints:
        spec = LaunchSpec("n", "w", fields.pop("source", "script"), **{"target": "x.py", **fields})
        events.append(Appender(paths.root / "events.jsonl", "supervisor"))
        return Hints(paths, spec, Journal(events[-1]))

    yield made
    for appender in events:
        appender.close()


def told_by(paths: SessionPaths) -> list[str]:
    return [r["what"] for r in Tail(paths.root / "events.jsonl").poll() if r["kind"] == "hint"]


def rank(paths: SessionPaths, number: int, count: int | None, world: int = 2, **more: Any) -> None:
    name = f"{number}-{more.get('attempt', 0)}-{100 + number}.jsonl"
    file = Appender(
        paths.ranks / name, "rank", rank=number, world_size=world, **{"attempt": 0, **more}
    )
    file.write("facts", subject="collectives", from_step=1, to_step=20, count=count)
    file.close()


def test_ranks_that_share_nothing_are_told_once(paths: SessionPaths, hints: Any) -> None:
    found = hints()
    rank(paths, 0, 0)
    found.end(ended_well=False)
    assert told_by(paths) == []  # the other one has told nothing yet
    rank(paths, 1, 0)
    found.end(ended_well=False)
    found.end(ended_well=False)
    assert told_by(paths) == ["alone"]


@pytest.mark.parametrize(("first", "second"), [(0, 3), (5, 5), (0, None)])
def test_ranks_that_may_share_something_are_not(
    paths: SessionPaths, hints: Any, first: int | None, second: int | None
) -> None:
    rank(paths, 0, first)
    rank(paths, 1, second)
    hints().end(ended_well=True)
    assert told_by(paths) == []


def test_one_rank_is_never_alone(paths: SessionPaths, hints: Any) -> None:
    rank(paths, 0, 0, world=1)
    hints().end(ended_well=True)
    assert told_by(paths) == []


def test_a_model_in_ddp_is_never_alone(paths: SessionPaths, hints: Any) -> None:
    rank(paths, 0, 0)
    file = Appender(paths.ranks / "1-0-7.jsonl", "rank", rank=1, world_size=2, attempt=0)
    file.write("facts", subject="ddp", parameters=3)
    file.write("facts", subject="collectives", from_step=1, to_step=20, count=0)
    file.close()
    hints().end(ended_well=True)
    assert told_by(paths) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch.multiprocessing as mp\nmp.spawn(work, nprocs=2)", ["own_ranks"]),
        ("torch.multiprocessing.start_processes(work)", ["own_ranks"]),
        ("dump.spawn(x)", []),
    ],
)
def test_a_script_that_starts_ranks_itself_is_told_how_to_be_run(
    paths: SessionPaths, hints: Any, text: str, expected: list[str]
) -> None:
    script = paths.root / "own.py"
    script.write_text(text)
    hints(target=str(script), nproc=2).begin()
    assert told_by(paths) == expected


def test_a_script_that_does_not_train_is_run_and_told_so(tmp_path: Path) -> None:
    (tmp_path / "hi.py").write_text("print('hi')")

    done = told("--device", "cpu", "--nproc", "2", "hi.py", cwd=tmp_path, home=tmp_path / "home")

    assert done.code == 0
    lines = done.out.splitlines()
    assert [line for line in lines if "it ended without training: it never imported torch" in line]
    assert "no steps" in lines
    assert done.summary["steps"] is None
    assert done.summary["verdict"] is None
    (log,) = (done.root / "logs").glob("*/attempt_0/0/stdout.log")
    assert log.read_text() == "hi\n"


def test_ranks_that_train_alone_are_told_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "alone.py").write_text(ALONE)

    done = told("--device", "cpu", "--nproc", "2", "alone.py", cwd=tmp_path, home=tmp_path / "home")

    assert done.code == 0
    assert done.out.count("hint: each of the 2 ranks trains alone") == 1
    assert done.summary["hints"] == [e["message"] for e in done.events if e["kind"] == "hint"]
    assert "each of the 2 ranks trains alone" in (done.root / "summary.md").read_text()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("PYTHONPATH=. {python} train.py", "write PYTHONPATH=...:$PYTHONPATH"),
        ("{python} -I train.py", "python -I reads no PYTHONPATH"),
    ],
)
def test_a_training_that_the_probe_is_kept_out_of(
    state_home: Path, tmp_path: Path, command: str, why: str
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text("import time, torch\nwhile True: time.sleep(0.1)")
    words = ("-c", command.format(python=bare_python()))
    session = Run(start_session(LaunchSpec("t", "t", "command", "sh", words, cwd=str(tmp_path))))
    try:
        (hint,) = wait_until(lambda: session.events("hint"), "it is told")
        assert hint["what"] == "not_entered"
        assert hint["message"].endswith(why)
        request_stop(session.paths, "kill", "test")
        session.ended()
        assert len(session.events("hint")) == 1
        assert json.loads(session.paths.summary.read_text())["hints"] == [hint["message"]]
    finally:
        session.clean()
