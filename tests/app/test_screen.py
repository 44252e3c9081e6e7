"""The running app: what is on the screen at each size, and what keys do to the display."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.driving import LARGE, MEDIUM, SMALL, driven
from app.made_session import CASES, make
from torchtop.app.charts.glyphs import ASCII

HEADINGS = {
    "verdict": "─ verdict ─",
    "gpus": "─ GPUs ─",
    "step": "─ step ─",
    "throughput": "─ throughput ─",
    "data": "─ data ─",
    "logs": "─ logs ─",
    "host": "─ host ─",
    "events": "─ events ─",
}
FIVE = ("verdict", "gpus", "step", "throughput", "data")
NUMBERS = (
    "CRITICAL", "38 % of step time", "up to 1.6x faster", "raise workers from 4 to 10",
    "41.2/140", "118 ms", "p50 ", "samples/s", "steps/s", "loss ", "ETA ",
    "stall 38 %", "workers 4", "batch 128", "prefetch 2", "synthetic data", "2 ranks",
)  # fmt: skip


@pytest.mark.parametrize(
    ("size", "panes"),
    [(SMALL, FIVE), (MEDIUM, tuple(HEADINGS)), (LARGE, tuple(HEADINGS))],
)
async def test_each_size_shows_its_panes_with_their_numbers(
    tmp_path: Path, size: tuple[int, int], panes: tuple[str, ...]
) -> None:
    async with driven(tmp_path, size=size) as d:
        await d.shows(*(HEADINGS[pane] for pane in panes))
        for pane in set(HEADINGS) - set(panes):
            assert HEADINGS[pane] not in d.text
        for number in NUMBERS:
            assert number in d.text
        assert "cannot draw" not in d.text
        assert {len(line) for line in d.lines} == {size[0]}


@pytest.mark.parametrize("case", ["sixteen", "eight", "cpu", "failed", "hostile", "starting"])
async def test_every_session_is_drawn_at_every_size(tmp_path: Path, case: str) -> None:
    async with driven(tmp_path, case) as d:
        for size in (SMALL, MEDIUM, LARGE, (40, 10)):
            await d.pilot.resize_terminal(*size)
            await d.until(lambda size=size: len(d.lines) == size[1])  # type: ignore[misc]
            assert "verdict" in d.text and "cannot draw" not in d.text
            assert all(line.isprintable() for line in d.lines)


async def test_a_screen_that_grows_is_arranged_anew(tmp_path: Path) -> None:
    async with driven(tmp_path, size=SMALL) as d:
        assert HEADINGS["events"] not in d.text
        await d.pilot.resize_terminal(*LARGE)
        await d.shows(HEADINGS["events"])


async def test_idle_shows_the_machine_and_the_catalog(tmp_path: Path) -> None:
    async with driven(tmp_path, None) as d:
        await d.shows("idle", HEADINGS["gpus"], "─ workloads ─", "2  compute-heavy", "NVIDIA H200")
        assert HEADINGS["step"] not in d.text


async def test_in_ascii_nothing_else_is_on_the_screen(tmp_path: Path) -> None:
    async with driven(tmp_path, "hostile") as d:
        d.app.update_view(glyphs=ASCII)
        d.app.main.repaint()
        await d.until(lambda: d.text.isascii(), "ASCII alone")  # noqa: PLW0108
        assert "verdict" in d.text and "CRITICAL" in d.text
        await d.press("x")
        assert d.text.isascii()


async def test_only_what_changed_is_painted(tmp_path: Path) -> None:
    async with driven(tmp_path) as d:
        painted: list[object] = []
        pane = d.app.main.board.query_one("#gpus")
        pane.refresh = lambda *regions, **_: painted.extend(regions)  # type: ignore[assignment]
        # when the same is shown again, nothing is painted
        d.app.update_view()
        assert painted == []
        # and when one GPU changes, only its row is
        snapshot = d.app.view.snapshot
        assert snapshot is not None
        from dataclasses import replace

        hot = replace(snapshot.gpus[0], now={**snapshot.gpus[0].now, "temperature_c": 91})
        d.app.update_view(snapshot=replace(snapshot, gpus=(hot, snapshot.gpus[1])))
        assert {region.y for region in painted} == {2}  # type: ignore[attr-defined]


class TestDisplayKeys:
    async def test_l_shows_the_logs_and_goes_back(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("l")
            await d.shows("rank 0: model has", "‹ all ranks ›")
            assert HEADINGS["step"] not in d.text
            await d.press("l")
            await d.shows(HEADINGS["step"])

    async def test_l_goes_to_logs_in_view_and_then_zooms(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=LARGE) as d:
            await d.press("l")
            await d.shows("─  logs ", HEADINGS["step"])
            await d.press("l")
            await d.until(lambda: HEADINGS["step"] not in d.text)

    @pytest.mark.parametrize(("key", "text"), [("h", "load"), ("e", "supervisor started")])
    async def test_h_and_e_show_host_and_events(self, tmp_path: Path, key: str, text: str) -> None:
        async with driven(tmp_path) as d:
            await d.press(key)
            await d.shows(text)
            await d.press("escape")
            await d.shows(HEADINGS["step"])

    async def test_z_zooms_the_pane_in_focus(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("tab", "tab", "z")
            await d.shows("GPUs")
            assert HEADINGS["verdict"] not in d.text
            await d.press("z")
            await d.shows(HEADINGS["verdict"])

    async def test_tab_visits_only_panes_in_view(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            seen = []
            for _ in range(6):
                await d.press("tab")
                assert d.app.focused is not None
                seen.append(d.app.focused.id)
            assert seen == [*FIVE, "verdict"]
            await d.press("shift+tab")
            assert d.app.focused is not None and d.app.focused.id == "data"

    async def test_tab_goes_on_to_the_next_pane_while_one_is_alone(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("tab", "z")
            seen = []
            for _ in range(8):
                seen.append(d.app.main.board.zoomed)
                await d.press("tab")
            assert seen == list(HEADINGS)
            assert d.app.main.board.zoomed == "verdict"
            await d.press("shift+tab")
            await d.shows("supervisor started")
            assert d.app.focused is not None and d.app.focused.id == "events"

    async def test_tab_while_idle_goes_through_what_idle_shows(self, tmp_path: Path) -> None:
        async with driven(tmp_path, None) as d:
            await d.shows("NVIDIA H200")
            await d.press("tab", "z", "tab")
            await d.until(lambda: d.app.main.board.zoomed == "catalog")
            await d.press("tab")
            assert d.app.main.board.zoomed in ("host", "gpus")

    async def test_left_and_right_choose_the_rank_of_the_logs(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("l", "right", "right")
            await d.shows("‹ rank 1 ›", "rank 1: model has")
            assert "rank 0: model has" not in d.text
            await d.press("left", "left")
            await d.shows("‹ all ranks ›", "rank 0: model has")

    async def test_slash_filters_the_logs_while_typing(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("slash", *"epoch")
            await d.until(lambda: d.app.main.board.logs.filter_text == "epoch")
            await d.press("enter")
            await d.shows("epoch 0 step")
            assert "model has" not in d.text
            await d.press("slash", "x", "escape")
            assert d.app.main.board.logs.filter_text == "epoch"

    async def test_scrolling_back_holds_the_place(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            assert d.app.session is not None
            log = next((d.app.session / "logs").glob("*/attempt_*/0/stdout.log"))
            with log.open("a") as file:
                file.writelines(f"line {i}\n" for i in range(50))
            await d.press("l")
            await d.shows("line 49")
            await d.press("up", "up")
            await d.shows("2 lines back")
            await d.press("end")
            await d.until(lambda: "lines back" not in d.text)

    async def test_space_holds_the_display_while_the_run_goes_on(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("space")
            await d.shows("PAUSED")
            held = d.app.view.snapshot
            follower = d.app._follower
            assert follower is not None
            follower.look_now()
            await d.until(lambda: d.app._held is not None, "a snapshot behind the held one")
            assert d.app.view.snapshot is held
            await d.press("space")
            await d.until(lambda: d.app.view.snapshot is not held)
            assert "PAUSED" not in d.text

    async def test_plus_and_minus_change_the_interval(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=MEDIUM) as d:
            await d.press("minus")
            await d.shows("every 2 s")
            await d.press("plus", "plus")
            await d.shows("every 0.5 s")
            assert d.app._follower is not None and d.app._follower.interval_s == 0.5

    async def test_help_lists_the_keys_in_groups(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=LARGE) as d:
            await d.press("question_mark")
            await d.shows("session", "display", "program", "1-9", "start a workload", "Ctrl+P")
            await d.press("question_mark")
            await d.until(lambda: "start a workload" not in d.text)

    async def test_a_remapped_key_is_told_by_help_and_works(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=LARGE) as d:
            d.app.set_keymap({"torchtop.zoom": "v"})
            await d.press("question_mark")
            await d.until(lambda: re.search(r"\bv +the pane in focus alone", d.text))
            await d.press("escape", "tab", "v")
            await d.until(lambda: HEADINGS["step"] not in d.text)

    async def test_the_palette_finds_workloads_and_actions(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=MEDIUM) as d:
            await d.press("ctrl+p")
            await d.shows("Search")
            await d.press(*"start comm")
            await d.shows("Start comm-heavy")

    async def test_the_palette_has_each_command_once_and_explained(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            commands = list(d.app.get_system_commands(d.app.screen))
            names = [command.title for command in commands]
            assert sorted(names) == sorted(set(names))
            told = {command.title: command.help for command in commands}
            assert all(told.values()) and len(set(told.values())) == len(told)
            assert told["Faster"] == "look more often; replay: faster"
            assert told["Slower"] == "look less often; replay: slower"

    async def test_another_theme_repaints_everything(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            before = d.app.screen._compositor.render_strips()[1]
            d.app.theme = "torchtop-light"
            await d.until(lambda: d.app.screen._compositor.render_strips()[1] != before)
            assert HEADINGS["verdict"] in d.text


class TestReplay:
    async def test_it_is_marked_and_moves(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=MEDIUM, replay=True) as d:
            await d.shows("REPLAY", "of 01:1")
            await d.press("right")
            await d.until(lambda: (p := d.app.view.replay) and p.at_s >= 10)
            await d.press("left")
            await d.until(lambda: (p := d.app.view.replay) and p.at_s < 10)
            await d.press("full_stop")
            await d.until(lambda: (p := d.app.view.replay) and p.at_s == p.length_s)
            await d.shows("CRITICAL")

    async def test_space_stops_and_starts_it(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=MEDIUM, replay=True) as d:
            await d.press("space")
            await d.until(lambda: (p := d.app.view.replay) and not p.playing)
            await d.shows("paused")

    async def test_the_footer_offers_what_a_recording_can(self, tmp_path: Path) -> None:
        async with driven(tmp_path, replay=True) as d:
            await d.shows("Left 10 s back", "Right 10 s on", ". end", "Space pause", "q quit")
            assert "stop" not in d.lines[-1] and "restart" not in d.lines[-1]

    async def test_no_key_stops_or_starts_anything_without_asking(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=MEDIUM, replay=True) as d:
            await d.press("x")
            await d.shows("this is a recording: there is nothing to stop")
            await d.press("2")
            await d.shows("This is a recording")
            await d.press("escape")
            assert d.asked("start") == d.asked("stop") == []


async def test_a_session_that_appears_late_is_followed(tmp_path: Path) -> None:
    async with driven(tmp_path, None) as d:
        # given a session directory that is still empty
        late = tmp_path / "sessions" / "20261201-late"
        late.mkdir()
        d.app.session = late
        d.app.follow(late)
        await d.until(lambda: d.app.view.snapshot is not None)
        # when it is written
        make(late, CASES["comm-heavy"], seconds=20)
        follower = d.app._follower
        assert follower is not None
        follower.look_now()
        # then it is shown
        await d.shows("comm-heavy", "Communication is not hidden")


async def test_keys_of_a_replay_change_its_speed_and_its_place(tmp_path: Path) -> None:
    async with driven(tmp_path, replay=True, size=MEDIUM, seconds=75) as d:
        await d.shows("REPLAY", "of 01:14", "+ faster")
        await d.press("+", "+")
        await d.shows("at 5x")
        await d.press("-")
        await d.shows("at 2x")
        await d.press("shift+right")
        await d.shows("01:14 of 01:14")
        await d.press("comma")
        await d.until(lambda: d.app.view.replay and d.app.view.replay.at_s < 60)
        assert d.app.view.interval_s == 1.0
