"""``rm``: sessions and sweeps are deleted, and nothing that is in use or not torchtop's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from session.made import held_lock, session
from torchtop.cli import main
from torchtop.session.paths import SessionPaths, home, write_json
from torchtop.session.sweeps import SweepPaths, new_sweep

LONG_AGO_S = time.time() - 90 * 86400


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "home"))
    return tmp_path


def made(name: str, wall_s: float = LONG_AGO_S, sweep: SweepPaths | None = None) -> SessionPaths:
    told = {"sweep": {"id": sweep.id, "cell": "a"}} if sweep else {}
    paths = session(home() / "sessions" / name, wall_s=wall_s, **told)
    paths.summary.write_text('{"status": "done"}')
    return paths


def swept(workload: str, measured_s: float | None = None) -> SweepPaths:
    paths = new_sweep(workload)
    write_json(paths.plan, {})
    write_json(paths.result, {"status": "done", "cells": []})
    if measured_s is not None:
        os.utime(paths.plan, (measured_s, measured_s))
    return paths


def test_a_sweep_goes_with_the_sessions_that_it_made(capsys: pytest.CaptureFixture[str]) -> None:
    sweep, other = swept("first"), swept("second")
    own = [made(f"20260101-00000{n}-first", sweep=sweep) for n in (1, 2)]
    noted = made("20260101-000003-first")  # as it says nothing of a sweep
    sweep.runs.write_text(f'{{"kind":"started","cell":"a","session":"{noted.id}"}}\n{{"ki')
    others = [made("20260102-000000-second", sweep=other), made("20260103-000000-mine")]

    assert main(["rm", sweep.id[:-1]]) == 0

    assert capsys.readouterr().out == f"deleted {sweep.id} and its 3 sessions\n"
    assert not sweep.root.exists() and not any(paths.root.exists() for paths in (*own, noted))
    assert other.root.exists() and all(paths.root.exists() for paths in others)


def test_a_sweep_that_is_being_measured_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = swept("model")
    own = made("20260101-000000-model", sweep=sweep)
    with held_lock(sweep.lock):
        assert main(["rm", sweep.id]) == 2
        assert f"or x in: torchtop sweep --resume {sweep.id}" in capsys.readouterr().err
    # likewise where the process that measures was killed, and its session goes on
    with held_lock(own.node("host-a").lock):
        assert main(["rm", sweep.id]) == 2
        assert f"stop it first: torchtop stop {own.id}" in capsys.readouterr().err
    assert sweep.root.exists() and own.root.exists()


def test_nothing_is_deleted_where_some_of_it_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = made("20260101-000000-a"), made("20260102-000000-b")
    with held_lock(second.node("host-a").lock):
        assert main(["rm", first.id, second.id]) == 2
    assert first.root.exists()
    assert "is running" in capsys.readouterr().err


def test_what_is_old_goes_and_what_runs_or_is_young_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old_sweep, young_sweep = swept("old", LONG_AGO_S), swept("young")
    old = [made("20260101-000000-old", sweep=old_sweep), made("20260101-000000-mine")]
    running, young = made("20260101-000001-runs"), made("20260401-000000-new", time.time())
    with held_lock(running.node("host-a").lock):
        assert main(["rm", "--older-than", "30d"]) == 0
    told = capsys.readouterr()
    assert f"deleted {old_sweep.id} and its 1 session\n" in told.out
    assert f"kept: {running.id} is running" in told.err
    assert not old_sweep.root.exists() and not any(paths.root.exists() for paths in old)
    assert young_sweep.root.exists() and young.root.exists() and running.root.exists()


def test_old_sessions_of_a_sweep_that_goes_on_stay_with_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # given a sweep of long ago that went on today, by its files and by what it says
    resumed, told = swept("resumed"), swept("told", LONG_AGO_S)
    write_json(told.result, {"cells": [], "updated_at": "2999-11-30T10:00:00+00:00"})
    cells = [made(f"20260101-00000{n}-cell", sweep=resumed) for n in (1, 2)]
    noted = made("20260101-000003-cell")  # as it says nothing of a sweep
    resumed.runs.write_text(f'{{"kind":"started","cell":"a","session":"{noted.id}"}}\n')
    other = made("20260101-000004-cell", sweep=told)
    mine, orphan = made("20260101-000005-mine"), made("20260101-000006-orphan")
    write_json(orphan.meta, {"id": orphan.id, "wall_s": LONG_AGO_S, "sweep": {"id": "gone"}})
    assert main(["rm", "--older-than", "30d"]) == 0
    printed = capsys.readouterr()
    assert sorted(printed.out.splitlines()) == [f"deleted {mine.id}", f"deleted {orphan.id}"]
    assert f"kept: 3 sessions of {resumed.id}, which is younger" in printed.err
    assert f"kept: 1 session of {told.id}, which is younger and needs it" in printed.err
    assert all(paths.root.exists() for paths in (*cells, noted, other, resumed, told))
    # and there is nothing more to delete
    assert main(["rm", "--older-than", "30d"]) == 0
    assert capsys.readouterr().out == "nothing else is that old\n"
    # a sweep whose last update makes no sense is as old as its files
    write_json(told.result, {"cells": [], "updated_at": ["x"]})
    assert main(["rm", "--older-than", "30d"]) == 0
    assert capsys.readouterr().out == f"deleted {told.id} and its 1 session\n"


def test_a_start_that_fits_sessions_and_a_sweep_deletes_none_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sweep = swept("model")
    paths = made(f"{sweep.id[:6]}-model")
    assert main(["rm", sweep.id[:6]]) == 2
    assert "fits 2 sessions and sweeps; give more of the id" in capsys.readouterr().err
    # no more where it fits several sessions, one of which the sweep has made
    own = made(f"{sweep.id[:6]}-other", sweep=sweep)
    assert main(["rm", sweep.id[:6]]) == 2
    assert "fits 3 sessions and sweeps; give more of the id" in capsys.readouterr().err
    assert sweep.root.exists() and own.root.exists()
    assert main(["rm", paths.id]) == 0
    assert sweep.root.exists() and not paths.root.exists()


def test_an_empty_name_deletes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    # given a script with `torchtop rm "$SESSION"`, and no SESSION
    sweep = swept("model")
    assert main(["rm", ""]) == 2
    paths = made("20260101-000000-model")
    assert main(["rm", ""]) == 2
    told = capsys.readouterr()
    assert "name is empty" in told.err and not told.out
    assert sweep.root.exists() and paths.root.exists()


def test_a_folder_with_a_plan_of_somebody_else_is_no_sweep_to_delete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "plan.json").write_text("{}")
    assert main(["rm", str(project)]) == 2
    assert (project / "plan.json").exists()
    assert len(capsys.readouterr().err.splitlines()) == 1
