"""A terminal that is dragged to all sizes while data comes in: nothing breaks."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from app.driving import driven
from app.made_session import CASES

SMALLEST, LARGEST = (20, 5), (300, 100)


@pytest.mark.fault(33, "a storm of resizes, 1 to 16 GPUs", "no crash")
@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 16])
async def test_every_size_is_drawn_in_any_order(
    tmp_path: Path, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CASES, "many", replace(CASES["findings"], gpus=gpus, ranks=gpus))
    chance = random.Random(gpus)
    sizes = [(chance.randrange(20, 300), chance.randrange(5, 100)) for _ in range(8)]
    async with driven(tmp_path, "many", size=LARGEST, seconds=20) as d:
        for size in [SMALLEST, LARGEST, *sizes, SMALLEST, (80, 24)]:
            # when sizes follow each other before one is drawn, with keys in between
            await d.pilot.resize_terminal(*size)
            d.burst(chance.choice("zleh"), "tab")
            await d.pilot.resize_terminal(size[0] - 1 if size[0] > 20 else 21, size[1])
            follower = d.app._follower
            assert follower is not None
            follower.look_now()
        # then the last one is drawn whole
        await d.press("escape", "escape")
        await d.pilot.resize_terminal(80, 24)
        await d.until(lambda: [len(line) for line in d.lines] == [80] * 24)
        await d.shows("Waiting for data")
        assert "cannot draw" not in d.text and d.app.failure is None
