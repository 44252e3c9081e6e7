"""A hung run: where each rank was last seen, and the stacks of all of them by a key."""

from __future__ import annotations

from pathlib import Path

from app.driving import MEDIUM, driven
from torchtop.session.stacks import Frame, RankStack

STACKS = [
    RankStack(
        0,
        (
            Frame("torch/autograd/graph.py:1072", "_engine", False),
            Frame("train.py:19", "train [bold]\x1b[2J", True),
        ),
        (Frame("threading.py:327", "wait", False),),
    ),
    RankStack(1, problem="it does not answer: it is stopped, or waits in the kernel"),
]


async def test_t_shows_the_stacks_of_all_ranks_as_text(tmp_path: Path) -> None:
    async with driven(tmp_path, "hung") as d:
        d.controller.ranks_stand = STACKS
        await d.shows("rank 1 last seen in backward, 55 s ago")
        await d.press("t")
        await d.shows(
            "rank 0: last seen", "train.py:19 in train [bold]·[2J", "torch/autograd/graph.py:1072",
            "rank 1: last seen in backward, 55 s ago", "it does not answer",
        )  # fmt: skip
        assert d.asked("stacks") == [("stacks", d.app.session)]
        assert not d.app.view.busy
        # the same key closes it
        await d.press("t")
        await d.until(lambda: len(d.app.screen_stack) == 1)


async def test_many_ranks_scroll(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        d.controller.ranks_stand = [
            RankStack(rank, (Frame(f"train.py:{rank}", "step", True),)) for rank in range(64)
        ]
        await d.press("t")
        await d.shows("train.py:0 in step", "more lines below")
        assert "train.py:63" not in d.text
        await d.press(*["pagedown"] * 25)
        await d.shows("train.py:63 in step", "the end")


async def test_without_a_live_run_there_are_no_stacks(tmp_path: Path) -> None:
    async with driven(tmp_path, "done") as d:
        await d.press("t")
        await d.shows("only ranks of a live run")
        assert d.asked("stacks") == []


async def test_a_supervisor_that_does_not_answer_is_told(tmp_path: Path) -> None:
    async with driven(tmp_path, size=MEDIUM) as d:
        d.controller.refuses = "the supervisor has not answered within 6 s"
        await d.press("t")
        await d.shows("has not answered within 6 s")
        assert len(d.app.screen_stack) == 1
