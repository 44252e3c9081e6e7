"""The session browser in a real terminal, and a baseline that outlives the program."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.made_session import CASES, make
from app.pty_child import Child
from app.test_terminal import LIMIT_S, READY, RESTORED, VIEWER

RECORDED = Path(__file__).parents[1] / "fixtures" / "sessions" / "slow-loader"


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A made session to look at, beside a recorded one of the same workload."""
    shutil.copytree(RECORDED, tmp_path / "sessions" / "a-recorded")
    return make(tmp_path / "sessions" / "s", CASES["slow-loader"], 30)


@pytest.fixture
def children() -> Iterator[list[Child]]:
    begun: list[Child] = []
    yield begun
    for child in begun:
        child.close()


@pytest.mark.parametrize(("size", "told"), [((80, 24), b"0.67x"), ((200, 50), b"-33 %")])
def test_open_mark_and_leave(
    shown: Path, children: list[Child], tmp_path: Path, size: tuple[int, int], told: bytes
) -> None:
    home = tmp_path / "home"
    child = Child(VIEWER, str(shown), size=size, TORCHTOP_HOME=str(home))
    children.append(child)
    assert child.read(LIMIT_S, until=READY), child.seen[-2000:]
    os.write(child.fd, b"b")
    assert child.read(LIMIT_S, until=b"3 231"), child.seen[-2000:]
    os.write(child.fd, b"\x1b[Bb")
    assert child.read(LIMIT_S, until=b"is the baseline of"), child.seen[-2000:]
    os.write(child.fd, b"\x1b")
    assert child.read(LIMIT_S, until=told), child.seen[-2000:]
    os.write(child.fd, b"q")
    assert child.read(LIMIT_S, until=b"detach: leave")
    os.write(child.fd, b"\r")
    assert child.wait(LIMIT_S) == 0
    assert all(sequence in child.seen for sequence in RESTORED)
    kept = json.loads((home / "baselines.json").read_text())
    assert list(kept["baselines"]) == ["slow-loader"]

    again = Child(VIEWER, str(shown), size=size, TORCHTOP_HOME=str(home))
    children.append(again)
    assert again.read(LIMIT_S, until=told), again.seen[-2000:]
