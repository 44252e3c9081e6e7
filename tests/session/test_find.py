"""Which session a person means."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from session.made import held_lock, kept, session
from torchtop.cli import main
from torchtop.session.find import find_either, find_session
from torchtop.session.paths import SessionError, list_sessions
from torchtop.session.sweeps import new_sweep

pytestmark = pytest.mark.usefixtures("own_home")


def test_the_latest_is_found_when_nothing_is_said(own_home: Path) -> None:
    kept(own_home, "20260101-000000-a-1111")
    latest = kept(own_home, "20260102-000000-a-2222")

    assert find_session(None) == latest
    assert [paths.id for paths in list_sessions()] == [
        "20260102-000000-a-2222",
        "20260101-000000-a-1111",
    ]


def test_a_session_is_found_by_id_by_the_start_of_its_id_by_name_and_by_path(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = kept(own_home, "20260101-000000-a-1111", name="base")
    new = kept(own_home, "20260102-000000-a-2222", name="base")
    elsewhere = session(tmp_path / "copied")

    assert find_session("20260101-000000-a-1111") == old
    assert find_session("20260101") == old
    assert find_session("base") == new  # the newest of that name
    assert find_session(str(elsewhere.root)) == elsewhere
    monkeypatch.chdir(tmp_path)
    assert find_session("copied") == elsewhere
    assert find_session("./copied") == elsewhere


def test_an_exact_id_wins_over_longer_ones(own_home: Path) -> None:
    short = kept(own_home, "20260101")
    kept(own_home, "20260101-b")

    assert find_session("20260101") == short


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("2026", "2026 fits 2 sessions; give more of the id"),
        ("nosuch", "no session is called nosuch; see: torchtop ls"),
        ("./nosuch", "./nosuch is not a session directory (no session.json in it)"),
        ("~nobody-at-all/x", "~nobody-at-all/x is not a session directory"),
        ("a\nb\x1b[31m", "no session is called a?b?[31m; see: torchtop ls"),
        ("a/\0", "a/? is not a session directory"),
        ("x" * 5000, "no session is called " + "x" * 200 + "...; see: torchtop ls"),
        ("/" * 5000, "/" * 200 + "... is not a session directory"),
    ],
)
def test_what_cannot_be_found_is_told_in_one_line(
    own_home: Path, reference: str, message: str
) -> None:
    kept(own_home, "20260101-000000-a-1111")
    kept(own_home, "20260102-000000-a-2222")

    with pytest.raises(SessionError) as told:
        find_session(reference)

    assert str(told.value).startswith(message)
    assert str(told.value).isprintable()


def test_what_was_looked_for_is_told_where_there_are_no_sessions() -> None:
    with pytest.raises(SessionError, match=r"no session is called nosuch: .* with: torchtop run"):
        find_session("nosuch")


def test_a_sweep_is_no_session_but_is_told_as_what_it_is() -> None:
    sweep = new_sweep("model")
    sweep.plan.write_text("{}")

    with pytest.raises(SessionError, match=f"a sweep is: torchtop report {sweep.id}"):
        find_session(sweep.id[:-1])
    assert find_either(sweep.id[:-1]) == sweep


@pytest.mark.parametrize("others", [True, False])
def test_where_sessions_and_sweeps_are_taken_both_are_told(own_home: Path, others: bool) -> None:
    if others:
        kept(own_home, "20260101-000000-a-1111")
        new_sweep("model").plan.write_text("{}")

    with pytest.raises(SessionError) as told:
        find_either("no\x1bsuch")
    assert str(told.value).startswith("no session and no sweep is called no?such; see: torchtop ls")
    assert "torchtop sweep --list" in str(told.value)
    with pytest.raises(SessionError, match=r"no session\.json in it\), and not a sweep's"):
        find_either("no/such")


def test_where_there_are_no_sessions_it_says_how_to_start_one() -> None:
    with pytest.raises(SessionError, match="start one with: torchtop run"):
        find_session(None)
    assert list_sessions() == []


def test_where_none_is_named_it_is_the_latest_that_runs_else_the_latest(own_home: Path) -> None:
    # given a long run, and one that was started after it and has ended
    older, runs, latest = (kept(own_home, f"2026010{n}-000000-a-1111") for n in (1, 2, 3))
    with held_lock(runs.node("host-a").lock):
        assert find_session(None) == runs
        # and what only records can be made of is made of one that is over
        assert find_session(None, over=True) == latest
    assert find_session(None) == find_session(None, over=True) == latest
    with held_lock(older.node("host-a").lock), held_lock(latest.node("host-a").lock):
        assert find_session(None) == latest
        assert find_session(None, over=True) == runs


def test_with_nothing_but_running_sessions_none_is_over(own_home: Path) -> None:
    only = kept(own_home, "20260101-000000-a-1111")
    with (
        held_lock(only.node("host-a").lock),
        pytest.raises(SessionError, match=f"no session has ended yet; {only.id} is running"),
    ):
        find_session(None, over=True)


@pytest.mark.parametrize("command", ["attach", "show", "export", "report", "stacks", "inspect"])
def test_every_command_means_the_same_session(
    command: str, own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "that runs, else the latest" in told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("replay", "the latest that has ended"),
        ("analyse", "the latest that has ended"),
        ("stop", "the only one that runs"),
    ],
)
def test_help_tells_what_another_command_means(
    command: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert told in " ".join(capsys.readouterr().out.split())


def test_show_shows_the_session_that_attach_would_watch(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, _ = kept(own_home, "20260101-000000-a-1111"), kept(own_home, "20260102-000000-a-2222")
    with held_lock(runs.node("host-a").lock):
        assert main(["show", "--json"]) == 0
    assert f'"id": "{runs.id}"' in capsys.readouterr().out


def test_one_that_may_have_just_begun_is_taken_where_there_is_no_other(own_home: Path) -> None:
    # given one without an end, of a moment ago: it begins, or its records are damaged
    ended = kept(own_home, "20260101-000000-a-1111")
    begun = kept(own_home, "20260102-000000-a-2222", wall_s=time.time())
    assert find_session(None) == begun
    assert find_session(None, over=True) == ended
    shutil.rmtree(ended.root)
    assert find_session(None, over=True) == begun
