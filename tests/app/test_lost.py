"""A session that has lost its supervisor or its directory: what the screen says, and offers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from app.driving import MEDIUM, Driven, driven
from torchtop.app.controller import LeftBehind


async def lose(d: Driven, *left: LeftBehind) -> None:
    """Leave the shown session with a lock that nobody holds."""
    assert d.app.session is not None
    d.controller.left = list(left)
    (node,) = (d.app.session / "nodes").iterdir()
    (node / "lock").touch()
    await d.shows("LOST")


def process(d: Driven, pid: int) -> LeftBehind:
    assert d.app.session is not None
    return LeftBehind(d.app.session.name, pid, "python [bold]\x1b[2J")


async def test_a_lost_session_says_so_above_its_last_verdict(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        await lose(d)
        await d.shows("supervisor is gone", "no process of it is left", "Waiting for data", "DATA")


async def test_what_it_has_left_is_named_and_ended_by_a_key(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        await lose(d, process(d, 41), process(d, 42), process(d, 43))
        await d.shows("python [bold]·[2J (pid 41)", "x ends what it has left here")
        await d.press("x")
        await d.shows("without a supervisor", "and 1 more", "end them: SIGTERM")
        assert d.asked("sweep") == []
        await d.press("enter")
        await d.until(lambda: d.asked("sweep") == [("sweep", d.app.session)])
        await d.shows("no process of it is left")


async def test_what_ends_by_itself_is_no_longer_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchtop.app.main.LEFT_EVERY_S", 0.0)
    async with driven(tmp_path) as d:
        await lose(d, process(d, 41))
        await d.shows("x ends what it has left here")
        d.controller.left = []
        await d.shows("no process of it is left")


async def test_escape_leaves_leftovers_alone_and_quit_asks_nothing(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        await lose(d, process(d, 41))
        await d.press("x")
        await d.shows("left python", "SIGTERM, after 2 s SIGKILL")
        await d.press("escape")
        await d.until(lambda: len(d.app.screen_stack) == 1)
        await d.press("q")
        await d.until(lambda: d.app._exit)
        assert d.asked("sweep") == d.asked("stop") == []


async def test_leftovers_of_other_sessions_are_told_and_ended_from_the_palette(
    tmp_path: Path,
) -> None:
    async with driven(tmp_path, None, MEDIUM) as d:
        d.controller.left = [LeftBehind("20261101-other", 77, "python")]
        d.app.operations.look_for_left(None)
        await d.shows("lost sessions have left a process running")
        await d.press("ctrl+p", *"leftovers", "enter")
        await d.shows("lost sessions left python (pid 77)")
        await d.press("enter")
        await d.until(lambda: d.asked("sweep") == [("sweep", None)])


@pytest.mark.fault(26, "the session directory goes away or is locked", "no crash; a clear message")
async def test_a_directory_that_is_deleted_is_told_and_the_run_can_be_stopped(
    tmp_path: Path,
) -> None:
    async with driven(tmp_path) as d:
        assert d.app.session is not None
        # given that the supervisor lives: it is this process, by its pid and its start
        shutil.rmtree(d.app.session)
        await d.shows("DELETED", "deleted; the run goes on", f"pid {os.getpid()}: x stops it")
        await d.press("x")
        await d.shows("Stop slow-loader?")
        await d.press("enter")
        await d.until(lambda: d.asked("stop") == [("stop", d.app.session, "stop")])


async def test_a_session_without_its_description_is_shown(tmp_path: Path) -> None:
    async with driven(tmp_path, size=MEDIUM) as d:
        assert d.app.session is not None
        (d.app.session / "session.json").unlink()
        d.app.follow(d.app.session)
        await d.shows("no session.json", "samples/s", "Waiting for data")
        await d.press("e", "e")
        await d.shows("its session.json is missing or damaged")
