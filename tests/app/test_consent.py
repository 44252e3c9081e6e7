"""The first start of a workload that a file in the directory names."""

from __future__ import annotations

from pathlib import Path

from app.driving import driven
from app.test_requests import answered

COMMAND = "cd /home/ana && LR=1 torchrun --nproc-per-node=2 /home/ana/train.py " + " ".join(
    f"--option-{i}={i}" for i in range(20)
)


async def test_its_command_is_shown_in_full_and_y_starts_it(tmp_path: Path) -> None:
    async with driven(tmp_path, None) as d:
        d.controller.unread["ours"] = COMMAND
        await d.press("7")
        await d.shows("ours is named by a file", "do not start it")
        inside = [line.split("│")[1].strip() for line in d.lines if line.count("│") == 2]
        assert COMMAND.replace(" ", "") in "".join(inside).replace(" ", "")
        assert d.asked("agree") == d.asked("start") == []
        await answered(d, "y")
        await d.until(lambda: d.asked("start") == [("start", "ours", {})])
        assert d.asked("agree") == [("agree", "ours")]


async def test_enter_n_and_escape_start_nothing(tmp_path: Path) -> None:
    async with driven(tmp_path, None) as d:
        d.controller.unread["ours"] = COMMAND
        for key in ("enter", "n", "escape"):
            await d.press("7")
            await d.shows("It runs:")
            await answered(d, key)
        assert d.asked("agree") == d.asked("start") == []


async def test_a_command_that_does_not_fit_cannot_be_agreed_to(tmp_path: Path) -> None:
    async with driven(tmp_path, None) as d:
        d.controller.unread["ours"] = "torchrun " + "x" * 5000
        await d.press("7")
        await d.shows("too long for this screen", "torchtop run ours")
        await d.press("y")
        await answered(d, "enter")
        assert d.asked("agree") == d.asked("start") == []


async def test_agreed_to_it_starts_at_once_and_with_a_live_run_asks_first(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        await d.press("7")
        await d.shows("slow-loader is running. Stop it and start ours?")
        await answered(d, "escape")
        assert d.asked("agree") == d.asked("start") == []


async def test_a_screen_that_becomes_too_small_takes_the_question_away(tmp_path: Path) -> None:
    async with driven(tmp_path, None) as d:
        d.controller.unread["ours"] = COMMAND
        await d.press("7")
        await d.shows("It runs:")
        await d.pilot.resize_terminal(80, 12)
        await d.until(lambda: len(d.app.screen_stack) == 1)
        assert d.asked("agree") == d.asked("start") == []
