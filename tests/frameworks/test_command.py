"""Scripts by the real command line: what a user reads of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.command import torchtop
from frameworks.pairs import SCRIPTS
from torchtop.session.follow import Follower

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run(home: Path) -> subprocess.CompletedProcess[str]:
    script = [str(SCRIPTS / "telling.py"), "--spoil"]
    words = ["run", "--no-tui", "--device", "cpu", "--nproc", "1"]
    return torchtop(*words, *script, home=home, cwd=home)


@pytest.fixture(scope="module")
def summary(run: subprocess.CompletedProcess[str], home: Path) -> Any:
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(torchtop("show", "--json", home=home, cwd=home).stdout)


def test_each_line_says_how_far_the_epoch_is(run: subprocess.CompletedProcess[str]) -> None:
    lines = [line for line in run.stdout.splitlines() if " (epoch " in line]

    assert lines
    assert all("/100)" in line for line in lines)


def test_a_phase_of_the_script_is_in_the_summary(summary: Any) -> None:
    own = summary["own_phases"]["augment"]

    assert own["ms"] >= 10
    assert 0 < own["share"] <= 1


def test_the_loss_is_there_although_the_script_does_not_log_it(summary: Any) -> None:
    assert summary["loss"]["name"] == "loss (backward)"
    assert 0 < summary["loss"]["min"] <= summary["loss"]["first"] < 10


def test_a_loss_that_is_no_number_is_found(summary: Any, home: Path) -> None:
    assert [finding["kind"] for finding in summary["findings"]] == ["NOT FINITE"]
    assert "The loss is NaN since step" in summary["findings"][0]["headline"]


def test_annotations_stand_among_the_events(summary: Any, home: Path) -> None:
    events = Follower(home / "sessions" / summary["id"]).poll().events

    assert [e["text"] for e in events if e["kind"] == "annotation"] == ["that was it"]
    assert [e["value"] for e in events if e["kind"] == "not_finite"] == ["nan"]
