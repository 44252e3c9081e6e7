"""The session browser: what is listed, opened, compared, and kept as a baseline."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from app.driving import LARGE, SMALL, Driven, driven
from app.made_session import CASES, make
from session.made_summary import ended
from torchtop.app.browser.rows import STATES, passes
from torchtop.app.browser.screen import Browser
from torchtop.session.baselines import read_baselines
from torchtop.session.overview import entry_of
from torchtop.session.paths import SessionPaths

RECORDED = Path(__file__).parents[1] / "fixtures" / "sessions"


def record(d: Driven, name: str, day: int = 28) -> Path:
    """A recorded session among those of the controller."""
    root = d.controller.root / f"202611{day}-{name}"
    shutil.copytree(RECORDED / name, root)
    return root


def listed(d: Driven) -> list[str]:
    """The sessions in the list, as it is drawn."""
    lines = [line.split("│")[1] for line in d.lines if line.count("│") == 2]
    rows = [line for line in lines if re.match(r" .[ ■][ ●] ", line)]
    return [" ".join(line.replace("▸", "").split()) for line in rows[1:] if line.strip()]


def browser(d: Driven) -> Browser:
    assert isinstance(d.app.screen, Browser)
    return d.app.screen


def under_cursor(d: Driven) -> str:
    current = browser(d).current
    assert current is not None
    return current.paths.id


async def opened(d: Driven, count: int) -> None:
    """The browser, once it lists so many sessions."""
    await d.press("b")
    await d.until(lambda: isinstance(d.app.screen, Browser))
    await d.until(lambda: browser(d).shown.total == count, f"{count} sessions")


class TestListing:
    @pytest.mark.parametrize("size", [SMALL, LARGE])
    async def test_all_sessions_with_their_figures(
        self, tmp_path: Path, size: tuple[int, int]
    ) -> None:
        async with driven(tmp_path, size=size) as d:
            record(d, "straggler")
            make(d.controller.root / "20261127-failed", CASES["failed"], 12)
            await opened(d, 3)
            await d.shows("straggler", "2 247", "STRAGGLER", "done", "failed", "Esc back")
            assert under_cursor(d) == "20261129-slow-loader"  # the one that is shown
            assert ("against" in d.text) is (size == LARGE)
            assert all(len(line) == size[0] for line in d.lines)

    @pytest.mark.parametrize("size", [SMALL, LARGE])
    async def test_help_tells_the_keys_of_the_list(
        self, tmp_path: Path, size: tuple[int, int]
    ) -> None:
        async with driven(tmp_path, size=size) as d:
            await opened(d, 1)
            await d.shows("? help")
            await d.press("question_mark")
            await d.shows(
                "in a box", "play it back", "all, live, ended, failed, lost", "these keys"
            )
            await d.press("question_mark")
            await d.until(lambda: isinstance(d.app.screen, Browser))
            await d.press("slash", "question_mark")  # a character like any other of a filter
            await d.until(lambda: browser(d).shown.text == "?")

    @pytest.mark.parametrize("size", [SMALL, LARGE])
    async def test_no_unit_of_a_rate_can_be_read_as_seconds(
        self, tmp_path: Path, size: tuple[int, int]
    ) -> None:
        async with driven(tmp_path, size=size) as d:
            for name, rates in (
                ("steps", {"samples_per_s": None, "steps_per_s": 1219.5}),
                ("tokens", {"samples_per_s": None, "tokens_per_s": 99_100.0}),
                ("samples", {"samples_per_s": 19.5}),
            ):
                root = d.controller.root / f"20261127-{name}"
                ended(root, 2000.0, name=name, workload=name, throughput=rates)
            await opened(d, 4)
            by_name = {row.split()[0]: row for row in listed(d)}
            assert " 1 220 steps/s " in by_name["steps"]
            assert " 99 100 tok/s " in by_name["tokens"]
            assert " 19.5 " in by_name["samples"] and "samples/s" in d.text  # the column's title
            # likewise the baseline of a workload, under the list
            await d.press("end")
            await d.until(lambda: under_cursor(d).startswith("20261127"))
            await d.until(lambda: not re.search(r"\d [st]/s", d.text))
            await d.press("b")
            await d.shows("● ", re.sub(r"2026\d*-", "", under_cursor(d)))
            await d.until(lambda: re.search(r"● \w+ [0-9. ]+ (samples|tokens|steps)/s", d.text))

    async def test_the_cursor_stays_on_its_session_when_others_come(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            record(d, "straggler")
            await opened(d, 2)
            await d.press("down")
            assert under_cursor(d) == "20261128-straggler"
            record(d, "comm-heavy", day=30)
            await d.until(lambda: browser(d).shown.total == 3)
            assert under_cursor(d) == "20261128-straggler"

    async def test_a_state_is_filtered_with_f_and_a_text_with_slash(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            record(d, "straggler")
            record(d, "comm-heavy")
            make(d.controller.root / "20261127-failed", CASES["failed"], 12)
            await opened(d, 4)
            await d.press("f", "f")
            await d.shows("2 of 4")
            await d.press("f")
            await d.shows("1 of 4")
            assert under_cursor(d) == "20261127-failed"
            await d.press("f", "f")
            await d.press("/", *"COMM-h q")
            await d.shows("0 of 4", "no session passes")
            await d.press("backspace", "backspace", "enter")
            await d.shows("1 of 4")
            assert under_cursor(d) == "20261128-comm-heavy"
            await d.press("escape")
            await d.shows("4 of 4")
            await d.press("escape")
            await d.until(lambda: len(d.app.screen_stack) == 1)

    def test_every_word_of_the_text_and_the_state_must_fit(self, tmp_path: Path) -> None:
        entry = entry_of(SessionPaths(ended(tmp_path / "s", 8000.0, name="base run")))
        assert passes(entry, "all", "") and passes(entry, "ended", "batch=256 BASE compute-bound")
        assert not passes(entry, "all", "base batch=512")
        others = set(STATES) - {"all", "ended"}
        assert not any(passes(entry, state, "") for state in others)

    async def test_no_sessions_are_told(self, tmp_path: Path) -> None:
        async with driven(tmp_path, None) as d:
            await d.press("b")
            await d.shows("no sessions yet")
            await d.press("enter", "p", "m", "c", "b", "down", "up", "f", "escape")
            await d.until(lambda: len(d.app.screen_stack) == 1)

    @pytest.mark.parametrize("size", [SMALL, LARGE, (20, 8), (40, 12)])
    async def test_hostile_sessions_are_text_in_any_size(
        self, tmp_path: Path, size: tuple[int, int]
    ) -> None:
        async with driven(tmp_path, "hostile", size) as d:
            await d.press("b")
            await d.until(lambda: isinstance(d.app.screen, Browser) and browser(d).shown.total == 1)
            assert all(line.isprintable() for line in d.lines)
            assert "cannot draw" not in d.text


class TestOpening:
    async def test_enter_opens_and_brackets_go_on_from_there(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            record(d, "straggler")
            record(d, "comm-heavy", day=27)
            await opened(d, 3)
            await d.press("down", "enter")
            await d.until(lambda: d.app.session and d.app.session.name == "20261128-straggler")
            await d.shows("STRAGGLER")
            assert not d.app.replay
            await d.press("left_square_bracket")
            await d.until(lambda: d.app.session and d.app.session.name == "20261127-comm-heavy")

    async def test_p_plays_an_ended_one_back_and_not_a_live_one(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=LARGE) as d:
            record(d, "straggler")
            await opened(d, 2)
            await d.press("p")
            await d.shows("Enter opens it")
            await d.press("down", "p")
            await d.shows("REPLAY")
            assert d.app.replay


class TestComparing:
    async def test_the_marked_one_with_the_one_under_the_cursor(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            record(d, "straggler")
            record(d, "comm-heavy", day=27)
            await opened(d, 3)
            await d.press("down", "m", "down", "c")
            await d.shows("compared", "A  straggler", "B  comm-heavy", "samples/s", "+119 %")
            await d.press("end")
            await d.press("pagedown", "pagedown", "pagedown", "pagedown")
            await d.shows("B  COMM")
            await d.press("escape", "escape")
            await d.until(lambda: len(d.app.screen_stack) == 1)

    async def test_with_nothing_marked_it_says_how(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=LARGE) as d:
            record(d, "straggler")
            await opened(d, 2)
            await d.press("c")
            await d.shows("m marks a session")

    async def test_without_a_mark_the_baseline_is_the_other_side(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=LARGE) as d:
            ended(d.controller.root / "20261128-base", 8000.0, name="old")
            ended(d.controller.root / "20261127-next", 4000.0, name="new")
            await opened(d, 3)
            await d.press("down", "b")
            await d.until(lambda: browser(d).shown.baselines)
            await d.press("down", "c")
            await d.shows("A  old", "B  new", "-50.0 %", "noise unknown")

    async def test_one_that_was_never_measured_is_told_in_a_line(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=LARGE) as d:
            ended(d.controller.root / "20261128-none", None)
            record(d, "straggler", day=27)
            await opened(d, 3)
            await d.press("down", "m", "down", "c")
            await d.shows("20261128-none has nothing to compare")
            assert isinstance(d.app.screen, Browser)


class TestBaseline:
    async def test_the_throughput_pane_shows_the_difference_and_it_stays(
        self, tmp_path: Path
    ) -> None:
        async with driven(tmp_path) as d:
            made = record(d, "slow-loader")
            await opened(d, 2)
            await d.press("down", "b")
            await d.shows("slow-loader is the baseline")
            assert read_baselines()["slow-loader"].directory == str(made)
            await d.press("escape")
            await d.shows("0.67x baseline")
        # when the viewer is started again
        shutil.rmtree(tmp_path / "sessions" / "20261129-slow-loader")
        async with driven(tmp_path, size=LARGE) as d:
            await d.shows("0.67x baseline", "-33 % on slow-loader, 3 231 samples/s")
            # and the mark is taken away
            await opened(d, 2)
            await d.press("down", "b")
            await d.shows("has no baseline any more")
            await d.press("escape")
            await d.until(lambda: "baseline" not in "\n".join(d.lines[:20]))
        assert read_baselines() == {}

    async def test_the_baseline_itself_is_told_to_be_it(self, tmp_path: Path) -> None:
        async with driven(tmp_path, "done", LARGE) as d:
            record(d, "compute-heavy")
            await opened(d, 2)
            await d.press("down", "b")
            await d.shows("is the baseline of")
            await d.press("enter")
            await d.until(lambda: d.app.session and d.app.session.name.endswith("compute-heavy"))
            await d.shows("the baseline of its workload")

    async def test_a_session_without_figures_cannot_be_one(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=LARGE) as d:
            ended(d.controller.root / "20261128-none", None)
            await opened(d, 2)
            await d.press("down", "b")
            await d.shows("cannot be a baseline")
            assert read_baselines() == {}


async def test_keys_in_haste_go_to_the_browser_alone(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        record(d, "straggler")
        await opened(d, 2)
        d.burst("f", "/", *"xsq1", "backspace", "backspace", "backspace", "backspace", "escape")
        d.burst("f", "f", "f", "f", "down", "m", "escape")
        await d.until(lambda: len(d.app.screen_stack) == 1)
        assert d.asked("start") == d.asked("stop") == []
        assert not d.app._exit
