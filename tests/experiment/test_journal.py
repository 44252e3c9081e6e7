"""What a killed sweep leaves on disk, and how it is taken up."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchtop.experiment.journal import Journal
from torchtop.session.paths import SessionError, SessionPaths, new_session, write_json
from torchtop.session.sweeps import SweepPaths, new_sweep

DONE = {"session": "s1", "status": "done", "measured": {"step_ms": 1.0}}
FAILED = {"session": "s2", "status": "failed", "reason": "no", "measured": None}


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepPaths:
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path))
    return new_sweep("w")


def session_of(sweep: SweepPaths, cell: str) -> SessionPaths:
    paths = new_session("w")
    write_json(paths.meta, {"sweep": {"id": sweep.id, "cell": cell}})
    return paths


def test_what_was_measured_is_there_the_next_day(sweep: SweepPaths) -> None:
    with Journal(sweep) as journal:
        journal.started("a", "s1")
        journal.ended("a", DONE)
        journal.started("b", "s2")
        journal.ended("b", FAILED)
    with Journal(sweep) as journal:
        assert journal.runs == {"a": [DONE], "b": [FAILED]}
        assert journal.unfinished() == []


def test_a_line_that_was_torn_by_a_kill_is_passed_over(sweep: SweepPaths) -> None:
    with Journal(sweep) as journal:
        journal.ended("a", DONE)
    with sweep.runs.open("a") as file:
        file.write('{"kind": "ended", "cell": "a", "sess')
    with Journal(sweep) as journal:
        assert journal.runs == {"a": [DONE]}


def test_sessions_that_went_on_without_the_sweep_are_found(sweep: SweepPaths) -> None:
    # given one that was written down, one that was not yet, one that has ended, and a stranger
    noted, new, over, strange = (session_of(sweep, cell) for cell in "abcd")
    write_json(strange.meta, {"sweep": {"id": "another", "cell": "d"}})
    with Journal(sweep) as journal:
        journal.started("a", noted.id)
        journal.started("c", over.id)
        journal.ended("c", {**DONE, "session": over.id})
        found = journal.unfinished()

    assert sorted((cell, paths.id) for cell, paths in found) == [("a", noted.id), ("b", new.id)]


def test_one_process_measures_at_a_time(sweep: SweepPaths) -> None:
    with Journal(sweep), pytest.raises(SessionError, match="measured by another process"):
        Journal(sweep)
    with Journal(sweep):
        pass


def test_what_failed_can_be_tried_again(sweep: SweepPaths) -> None:
    with Journal(sweep) as journal:
        journal.ended("a", DONE)
        journal.ended("b", FAILED)
        assert journal.forget_failures() == 1
        assert journal.runs["b"] == []
    with Journal(sweep) as journal:
        assert journal.runs == {"a": [DONE], "b": []}
        assert journal.forget_failures() == 0
