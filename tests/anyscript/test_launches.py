"""All ranks of one launch give it the same number, and no two launches have one in common."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchtop.probe import launches

Join = Callable[..., int]


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def firsts() -> list[int]:
    """The first attempt of the launch of each that has joined."""
    return []


@pytest.fixture
def join(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: list[subprocess.Popen[bytes]],
    firsts: list[int],
) -> Join:
    """Join as a process of its own, which lives until it is ended."""

    def joined(key: str, rank: int) -> int:
        process = subprocess.Popen(["sleep", "1000"])
        processes.append(process)
        monkeypatch.setattr(launches.os, "getpid", lambda: process.pid)
        joined_to = launches.join(tmp_path, key, rank, launches.restarted())
        firsts.append(joined_to.first)
        return joined_to.attempt

    return joined


def test_ranks_of_one_launch_come_together(join: Join) -> None:
    assert [join("a", rank) for rank in (1, 0, 2)] == [0, 0, 0]


def test_a_rank_that_is_there_already_begins_another(join: Join) -> None:
    assert [join("a", rank) for rank in (0, 1, 1, 0)] == [0, 0, 1, 1]


def test_other_launches_are_not_joined(join: Join) -> None:
    assert [join("a", 0), join("b", 1), join("a", 1), join("b", 0)] == [0, 1, 0, 1]


def test_a_launch_whose_ranks_have_all_gone_is_over(
    join: Join, processes: list[subprocess.Popen[bytes]]
) -> None:
    # given a launch of which one rank alone came to its first backward
    assert join("a", 0) == 0
    processes[0].kill()
    processes[0].wait()
    # when the next one begins with the other
    assert [join("a", 1), join("a", 0)] == [1, 1]


def test_what_torchrun_starts_anew_is_an_attempt_of_the_same_launch(
    join: Join, firsts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given two launches, one after the other, with the run id that torchrun gives by itself
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    for launch in ("a", "b"):
        # when the ranks of each are started anew twice
        for restarts in ("0", "1", "2"):
            monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
            join(launch + restarts, 0)
            join(launch + restarts, 1)
    # then each has attempts of its own
    assert firsts == [0] * 6 + [3] * 6


def test_a_list_that_is_damaged_is_an_error_and_not_a_number(join: Join, tmp_path: Path) -> None:
    (tmp_path / launches.FILE).write_text("[{")
    with pytest.raises(ValueError, match="Expecting"):
        join("a", 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MASTER_PORT", "2"),
        ("MASTER_ADDR", "other"),
        ("TORCHELASTIC_RUN_ID", "other"),
        ("TORCHELASTIC_RESTART_COUNT", "1"),
    ],
)
def test_what_tells_two_launches_apart(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("MASTER_PORT", "1")
    before = launches.key_of(2)
    assert launches.key_of(2) == before != launches.key_of(3)
    monkeypatch.setenv(name, value)
    assert launches.key_of(2) != before
