"""A run that waits for its GPU: a key has a step inspected, and shows the lines."""

from __future__ import annotations

from pathlib import Path

from app.driving import MEDIUM, driven
from torchtop.session.inspections import Inspected

CALL = {
    "file": "/x/train[bold].py",
    "line": 88,
    "function": "step",
    "text": "loss\x1b[2J.item()",
    "count": 2,
    "call": None,
    "library": None,
}


async def test_i_has_a_step_inspected_and_shows_the_calls_as_text(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        d.controller.ranks_found = [
            Inspected(0, 812, (CALL,)),
            Inspected(1, problem="nothing to inspect: no CUDA"),
        ]
        await d.press("i")
        await d.shows(
            "rank 0, step 812: 1 place waits for the GPU",
            "loss·[2J.item() at train[bold].py:88, 2 a step",
            "rank 1: not inspected",
            "nothing to inspect: no CUDA",
        )
        assert d.asked("inspect") == [("inspect", d.app.session)]
        assert not d.app.view.busy
        # the same key closes it
        await d.press("i")
        await d.until(lambda: len(d.app.screen_stack) == 1)


async def test_without_a_live_run_there_is_nothing_to_inspect(tmp_path: Path) -> None:
    async with driven(tmp_path, "done") as d:
        await d.press("i")
        await d.shows("only ranks of a live run")
        assert d.asked("inspect") == []


async def test_ranks_that_do_not_train_are_told(tmp_path: Path) -> None:
    async with driven(tmp_path, size=MEDIUM) as d:
        d.controller.refuses = "no rank trains yet"
        await d.press("i")
        await d.shows("no rank trains yet")
        assert len(d.app.screen_stack) == 1
