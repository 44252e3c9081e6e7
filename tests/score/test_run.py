"""The harness from end to end: a fault through the real program, on a CPU, at a tiny size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from score import recording

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("run.py")
TINY = ["batch=64", "width=64", "depth=4", "delay_ms=30"]


def score(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of two seconds: too short for a verdict."""
    out = tmp_path_factory.mktemp("shard")
    options = [word for option in TINY for word in ("-o", option)]
    given = ["--faults", "F6b", "--seconds", "2", "--fixed-seconds", "0.5", "--profile-steps", "40"]
    done = score(*given, "--counterfactual", "--profile", "--out", str(out), *options)
    assert (out / "score.json").is_file(), done.stderr
    return out


def test_a_run_is_recorded_without_what_it_does_not_need(shard: Path) -> None:
    about = json.loads((shard / "F6b" / "run.json").read_text())
    session = shard / "F6b" / "session"
    assert about["status"] == 0
    assert (session / "analysis.jsonl").is_file()
    assert not (session / "stage").exists()


def test_all_parts_are_in_one_recording_and_the_steps_are_counted_alike(shard: Path) -> None:
    # when
    found = recording.read(shard / "F6b" / "session")
    # then
    assert set(found.parts) == {"fault", "fixed", "profile"}
    assert found.parts["fixed"].from_step == found.parts["fault"].to_step
    assert set(found.steps) == {0, 1}
    assert not found.misaligned


def test_probe_and_trace_see_the_same_in_the_same_steps(shard: Path) -> None:
    (row,) = json.loads((shard / "score.json").read_text())["faults"]
    assert row["problem"] == "there was no verdict before the fault ended"
    assert row["compared_steps"] > 0
    assert row["phase_gap"] < 0.1
    assert row["gain"] is not None


def test_a_recording_is_judged_again_without_running(shard: Path) -> None:
    # given
    analysis = shard / "F6b" / "session" / "analysis.jsonl"
    analysis.unlink()
    # when
    done = score("--offline", str(shard))
    # then
    assert analysis.is_file()
    assert "| F6b | slow-backward | STRAGGLER |" in done.stdout


def test_nothing_is_started_that_would_not_be_through_in_time(tmp_path: Path) -> None:
    done = score("--faults", "F0,F1", "--budget", "0", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "score: out of time before F0\nscore: not well ended: F0 F1\n" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--faults", "F99"], "score: there is no fault F99\n"),
        (["--faults", "F9", "--device", "cpu"], "score: F9 cannot happen on cpu\n"),
        (["--report", "nowhere"], "score: no recordings in nowhere\n"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(words: list[str], line: str) -> None:
    done = score(*words)
    assert done.returncode != 0
    assert done.stderr == line
