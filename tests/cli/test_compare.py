"""``torchtop compare`` as it is typed: the table, the exit status, and hostile sessions as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import torchtop
from cli.typed import Typed
from session.made_summary import ended

RECORDED = Path(__file__).parents[1] / "fixtures" / "sessions"


def test_recorded_sessions_side_by_side(tmp_path: Path) -> None:
    sides = [str(RECORDED / name) for name in ("resnet50-cifar10", "comm-heavy")]
    done = torchtop("compare", *sides, home=tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("A  resnet50-cifar10: resnet50-cifar10, 2 ranks on 2 x NVIDIA H200")
    (speed,) = (line.split() for line in lines if line.startswith("samples/s"))
    assert speed == ["samples/s", "7,707", "4,921", "-36.2", "%", "–", "noise", "not", "known"]
    assert any(line.startswith("workload ") and "comm-heavy" in line for line in lines)
    assert any(line.startswith("verdict A  LAUNCH") for line in lines)
    assert any(line.startswith("verdict B  COMM") for line in lines)


def repeats(folder: Path, name: str, rate: float) -> str:
    made = [ended(folder / f"{name}{i}", rate * (1 + i / 1000), name=name) for i in range(3)]
    return ",".join(map(str, made))


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (["throughput<-5%"], 1),
        (["throughput<-20%"], 0),
        (["throughput<-20%", "step_ms>5%"], 1),
        ([], 0),
    ],
)
def test_a_broken_limit_is_the_exit_status(limits: list[str], status: int, tmp_path: Path) -> None:
    sides = [repeats(tmp_path, "a", 8000.0), repeats(tmp_path, "b", 7000.0)]
    words = [word for limit in limits for word in ("--fail-if", limit)]

    done = torchtop("compare", *sides, *words, home=tmp_path / "home", cwd=tmp_path)

    assert done.returncode == status, done.stderr
    assert "slower" in done.stdout
    told = done.stderr.splitlines()
    assert len(told) == len(limits)
    assert sum(line.startswith("FAILED ") for line in told) == (1 if status else 0)


def test_json_is_json_alone(tmp_path: Path) -> None:
    sides = [repeats(tmp_path, "a", 8000.0), repeats(tmp_path, "b", 7000.0)]
    done = torchtop(
        "compare", "--json", *sides, "--fail-if", "throughput<-5%", home=tmp_path / "h",
        cwd=tmp_path,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert done.returncode == 1 and told["failed"] is True
    assert told["measures"][0]["differences"][0]["call"] == "worse"


def test_hostile_sessions_are_text(tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202e\n\rA"
    changes = {
        "name": evil,
        "workload": evil,
        "options": {evil: evil},
        "versions": {"torch": evil},
        "verdict": {"kind": evil, "headline": evil},
    }
    a = ended(tmp_path / "a", 8000.0)
    b = ended(tmp_path / "b", 8000.0, **changes)
    done = torchtop("compare", str(a), str(b), home=tmp_path / "h", cwd=tmp_path)
    assert done.returncode == 0
    assert all(line.isprintable() for line in done.stdout.split("\n"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compare"], "SIDE"),
        (["compare", "one"], "two sides"),
        (["compare", "one", "no/where"], "not a session directory"),
        (["compare", "one", "two", "--fail-if", "speed<1%"], "throughput"),
        (["compare", "one", "two", "--fail-if", "nonsense"], "throughput<-5%"),
        (["compare", "one", "empty"], "nothing to compare"),
        (["compare", "one", "newer"], "update torchtop"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    ended(home / "sessions" / "one", 8000.0, name="first")
    ended(home / "sessions" / "two", 8000.0, name="second")
    ended(home / "sessions" / "empty", None, name="third")
    ended(home / "sessions" / "newer", 8000.0, name="fourth", schema=99)

    status, printed, complaint = Typed(home, tmp_path, monkeypatch, capsys)(*words)

    assert (status, printed) == (2, "")
    assert len(complaint.splitlines()) == 1, complaint
    assert told in complaint
