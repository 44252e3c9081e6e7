"""The wall clock is set while a run goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from torchtop.launch.analyst import analyse_again
from torchtop.session.paths import SessionPaths
from torchtop.session.summary import build_summary

RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "sessions" / "slow-loader"


def set_clock(file: Path, by_s: float) -> None:
    """Have a file's header tell a wall clock that was set by so much before it was opened."""
    lines = file.read_text().splitlines(keepends=True)
    header = json.loads(lines[0])
    header["wall_s"] += by_s
    file.write_text(json.dumps(header) + "\n" + "".join(lines[1:]))


def durations(paths: SessionPaths) -> dict[str, Any]:
    summary = build_summary(paths)
    names = ("wall_s", "steps", "step_ms", "phases", "throughput")
    return {name: summary[name] for name in names}


@pytest.mark.fault(27, "the wall clock jumps", "durations stay right")
@pytest.mark.parametrize("by_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_changes_no_duration(tmp_path: Path, by_s: float) -> None:
    # given a recorded run
    paths = SessionPaths(tmp_path / "session")
    shutil.copytree(RECORDED, paths.root)
    analyse_again(paths)
    before = durations(paths)
    analyses = sum(1 for _ in paths.analysis.open())
    # when the clock had been set after the supervisor had started, and before the ranks did
    for file in paths.ranks.glob("*.jsonl"):
        set_clock(file, by_s)
    analyse_again(paths)
    # then all is as long as it was
    assert durations(paths) == before
    assert abs(sum(1 for _ in paths.analysis.open()) - analyses) <= 1
