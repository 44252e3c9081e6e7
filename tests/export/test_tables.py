"""CSV tables: what a spreadsheet reads is what was recorded, and never a formula."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from app.made_session import CASES, HOSTILE, make
from session.made import session, write
from torchtop.export.source import Source
from torchtop.export.tables import write_tables
from torchtop.session.load import load_paths
from torchtop.session.paths import SessionPaths
from torchtop.session.records import PHASES

RECORDED = Path(__file__).parents[1] / "fixtures" / "sessions"
NAMES = {"steps", "seconds", "ranks", "scalars", "pauses", "gpus", "hosts", "verdicts"}


def tables(
    root: Path, tmp_path: Path, last_s: float | None = None
) -> dict[str, list[dict[str, str]]]:
    folder = tmp_path / "out"
    folder.mkdir()
    files = write_tables(Source(load_paths(SessionPaths(root)), last_s), folder)
    read = {}
    for file in files:
        with file.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.reader(lines))
        assert len({len(row) for row in rows}) == 1, f"{file.name} has rows of different lengths"
        read[file.stem] = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    return read


def test_a_recorded_session(tmp_path: Path) -> None:
    read = tables(RECORDED / "straggler", tmp_path)
    assert set(read) == NAMES
    steps = read["steps"]
    assert {row["rank"] for row in steps} == {"0", "1"}
    for row in steps:
        assert int(row["duration_us"]) == sum(int(row[f"{phase}_us"]) for phase in PHASES)
    last = read["seconds"][-1]
    assert last["verdict_kind"] == "STRAGGLER" and last["verdict_rank"] == "1"
    assert float(last["samples_per_s"]) > 0 and 0 <= float(last["data_share"]) <= 1
    assert {row["gpu"] for row in read["gpus"]} == {"0", "1"}
    assert all(float(row["cpu_percent"] or 0) >= 0 for row in read["hosts"])
    assert read["verdicts"][0]["kind"] == "STRAGGLER"
    assert {row["name"] for row in read["scalars"]} >= {"loss"}
    assert float(steps[0]["time_s"]) == pytest.approx(1796052000, abs=4000)
    assert 0 < float(steps[0]["at_s"]) < 60


def test_what_is_not_known_is_an_empty_cell(tmp_path: Path) -> None:
    read = tables(RECORDED / "resnet50-cifar10", tmp_path)
    assert read["gpus"][0]["sm_active"] == ""
    assert read["gpus"][0]["util_percent"] == "0"
    assert read["seconds"][0]["samples_per_s"] == ""


def test_the_last_seconds_alone(tmp_path: Path) -> None:
    read = tables(RECORDED / "comm-heavy", tmp_path, last_s=8.0)
    ends = [float(row["at_s"]) for row in read["steps"]]
    assert 6.0 < max(ends) - min(ends) < 9.0
    assert min(float(row["at_s"]) for row in read["seconds"]) > min(ends) - 1.0


def test_text_of_a_session_is_no_formula_and_moves_no_cursor(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", host="host-a")
    evil = "=HYPERLINK(\x1b[31m'x')"
    scalars = [
        {"kind": "scalars", "step": i, "values": {name: 1.0}}
        for i, name in enumerate((evil, "+1", "-1", "@x", HOSTILE, "loss"))
    ]
    write(paths.ranks / "0-0-9.jsonl", "process", *scalars, rank=0, attempt=0)
    names = [row["name"] for row in tables(paths.root, tmp_path)["scalars"]]
    assert names[0].startswith("'=") and names[1:4] == ["'+1", "'-1", "'@x"]
    assert names[5] == "loss"
    assert all(name.isprintable() for name in names)


def test_numbers_below_zero_stay_numbers(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", host="host-a")
    told = {"kind": "scalars", "step": 1, "values": {"loss": -2.5}}
    write(paths.ranks / "0-0-9.jsonl", "process", told, rank=0, attempt=0)
    assert tables(paths.root, tmp_path)["scalars"][0]["value"] == "-2.5"


def test_the_last_attempt_of_a_rank_counts(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", host="host-a")
    for attempt in range(2):
        told = {"kind": "scalars", "step": attempt, "values": {"loss": 1.0}}
        write(paths.ranks / f"0-{attempt}-9.jsonl", "process", told, rank=0, attempt=attempt)
    assert [row["step"] for row in tables(paths.root, tmp_path)["scalars"]] == ["1"]


def test_the_last_launch_of_a_command_counts(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", host="host-a")
    for rank, attempt in ((0, 0), (1, 0), (0, 1)):
        told = {"kind": "scalars", "step": attempt, "values": {"loss": 1.0}}
        header = {"rank": rank, "attempt": attempt, "first_attempt": attempt}
        write(paths.ranks / f"{rank}-{attempt}-9.jsonl", "process", told, **header)
    rows = tables(paths.root, tmp_path)["scalars"]
    assert [(row["rank"], row["step"]) for row in rows] == [("0", "1")]


@pytest.mark.parametrize("case", ["hostile", "cpu", "sixteen", "warming"])
def test_made_up_sessions_of_all_kinds(case: str, tmp_path: Path) -> None:
    read = tables(make(tmp_path / "s", CASES[case], 20), tmp_path)
    assert all(
        cell.isprintable() for rows in read.values() for row in rows for cell in row.values()
    )
