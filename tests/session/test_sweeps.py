"""Where sweeps lie and how one is found."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from torchtop.session.paths import SessionError, write_json
from torchtop.session.sweeps import SweepPaths, find_sweep, list_sweeps, new_sweep, read_sweep


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path))
    return tmp_path


def made(workload: str, status: str = "done") -> SweepPaths:
    paths = new_sweep(workload)
    write_json(paths.plan, {})
    write_json(paths.result, {"status": status, "cells": []})
    return paths


def test_a_sweep_is_found_by_id_by_its_start_and_by_path() -> None:
    paths = made("a-model")

    for reference in (paths.id, paths.id[:-1], str(paths.root), None):
        assert find_sweep(reference) == paths
    assert list_sweeps() == [paths]
    assert paths.root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("reference", "line"),
    [
        (None, "there are no sweeps yet; start one with: torchtop sweep WORKLOAD"),
        ("nope", "no sweep is called nope: there are no sweeps yet"),
        ("x/y", "is not a sweep's directory"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(reference: str | None, line: str) -> None:
    with pytest.raises(SessionError, match=line):
        find_sweep(reference)


def test_a_name_that_fits_none_or_several_is_told() -> None:
    first, second = made("model"), made("model")

    with pytest.raises(SessionError, match="fits 2 sweeps"):
        find_sweep(first.id[:8])
    with pytest.raises(SessionError, match="no sweep is called nope; see: torchtop sweep --list"):
        find_sweep("nope")
    assert {paths.id for paths in list_sweeps()} == {first.id, second.id}


def test_one_that_a_killed_process_left_running_reads_as_stopped() -> None:
    paths = made("model", "running")

    assert read_sweep(paths)["status"] == "stopped"
    with paths.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert read_sweep(paths)["status"] == "running"


def test_a_damaged_result_is_told_in_one_line() -> None:
    paths = made("model")
    paths.result.write_text("{")

    with pytest.raises(SessionError, match="cannot be read"):
        read_sweep(paths)
