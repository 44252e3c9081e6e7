"""Keys that arrive together: each is handled once, in the order of typing."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.driving import MEDIUM, Driven, driven
from torchtop.app.screens.picker import Picker


async def alone(d: Driven) -> None:
    """Wait until no modal is left."""
    await d.until(lambda: len(d.app.screen_stack) == 1)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("x", "k"),
        ("x", "x"),
        ("x", "enter"),
        ("x", "escape"),
        ("r", "y"),
        ("4", "escape"),
        ("question_mark", "?"),
        ("question_mark", "q"),
        ("o", "o"),
        ("w", "escape"),
        ("w", "enter"),
        ("slash", "enter"),
        ("slash", "escape"),
        ("ctrl+p", "escape"),
    ],
)
async def test_what_closes_a_modal_may_come_three_times(
    tmp_path: Path, opening: str, closing: str
) -> None:
    async with driven(tmp_path, size=MEDIUM) as d:
        await d.press(opening)
        await d.until(lambda: len(d.app.screen_stack) == 2, "a modal")
        d.burst(closing, closing, closing)
        await d.until(lambda: not d.app.main._message_queue.qsize())
        # then whatever it asked for happens at most once, and the app lives
        await d.press("ctrl+l")
        assert d.app.failure is None
        assert len(d.asked("stop")) <= 1 and len(d.asked("start")) <= 1


async def test_a_detach_asked_twice_is_a_detach(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        await d.press("q")
        await d.shows("detach: leave")
        d.burst("d", "d")
        await d.until(lambda: d.app._exit)
        assert d.app.return_value == 0 and d.app.failure is None


async def test_keys_behind_an_answer_do_not_reach_the_board(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        await d.press("x")
        await d.shows("Stop slow-loader?")
        d.burst("escape", "z", "x")
        await alone(d)
        await d.press("ctrl+l")
        assert d.app.main.board.zoomed is None
        assert len(d.app.screen_stack) == 1


async def test_the_picker_takes_letters_and_backspaces_in_their_order(tmp_path: Path) -> None:
    async with driven(tmp_path, None) as d:
        await d.press("w", *"comm")
        d.burst(*["backspace"] * 4, *"zz")
        picker = d.app.screen
        assert isinstance(picker, Picker)
        await d.until(lambda: picker.text == "zz")
        await d.shows("nothing matches")


async def test_the_filter_takes_letters_and_backspaces_in_their_order(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        await d.press("slash", *"comm")
        d.burst(*["backspace"] * 4, *"ep", "backspace", *"poch", "enter")
        await alone(d)
        assert d.app.main.board.logs.filter_text == "epoch"


async def test_the_filter_says_what_its_keys_do(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        await d.press("slash")
        await d.shows("Enter keeps", "Esc cancels")


async def test_a_pane_key_twice_in_one_read_goes_there_and_zooms(tmp_path: Path) -> None:
    async with driven(tmp_path, size=MEDIUM) as d:
        d.burst("l", "l")
        await d.until(lambda: d.app.main.board.zoomed == "logs")
        d.burst("tab", "tab", "z")
        await d.until(lambda: d.app.main.board.zoomed is None)
        assert d.app.focused is not None and d.app.focused.id == "events"
