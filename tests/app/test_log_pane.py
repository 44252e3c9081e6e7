"""The logs in the running app: what a filter, a zoom and a replay show of them."""

from __future__ import annotations

from pathlib import Path

from app.driving import driven


async def test_a_filter_that_nothing_matches_says_so(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        await d.press("slash", *"zzz", "enter")
        await d.shows("no line contains zzz")
        assert "no output yet" not in d.text


async def test_page_up_on_few_lines_leaves_them_in_view(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        await d.press("slash", *"model has", "enter")
        await d.shows("rank 0: model has")
        await d.press("pageup", "pageup", "up")
        assert "lines back" not in d.text
        await d.shows("rank 0: model has", "rank 1: model has")


async def test_a_line_is_cut_beside_others_and_whole_when_the_pane_is_alone(
    tmp_path: Path,
) -> None:
    async with driven(tmp_path, size=(80, 60)) as d:
        assert d.app.session is not None
        log = next((d.app.session / "logs").glob("*/attempt_*/0/stdout.log"))
        with log.open("a") as file:
            file.write("begins " + "-" * 100 + " ends\n")
        follower = d.app._follower
        assert follower is not None
        follower.look_now()
        await d.shows("begins ---")
        assert "- ends" not in d.text
        await d.press("l", "l")
        await d.shows("begins ---", "- ends")


async def test_a_replay_shows_no_line_before_its_end(tmp_path: Path) -> None:
    async with driven(tmp_path, replay=True) as d:
        await d.press("l", "l")
        await d.shows("log lines carry no time")
        assert "model has" not in d.text
        await d.press("full_stop")
        await d.shows("model has")
        d.app.seek(-30)
        await d.shows("log lines carry no time")
        assert "model has" not in d.text
