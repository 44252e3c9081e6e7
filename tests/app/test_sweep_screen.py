"""The screen of a sweep: rows from ``sweep.json``, and the app on a directory that is made up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.made_session import CASES, make
from experiment.test_plan import cells
from experiment.test_result import RUNS
from experiment.test_schedule import FAILED, plan_of
from torchtop.app.charts.glyphs import ASCII
from torchtop.app.sweep.main import SweepApp
from torchtop.app.sweep.rows import Seen, body, footer, header
from torchtop.app.text import Row, row_width
from torchtop.experiment.result import build
from torchtop.session.paths import sessions_root, write_json
from torchtop.session.sweeps import SweepPaths, new_sweep

LIMIT_S = 10.0
Runs = dict[str, list[dict[str, Any]]]


def sweep(runs: Runs, status: str = "running", running: str | None = None) -> dict[str, Any]:
    made = cells((1, 2, 8), batch_per_gpu="128")
    session = "s" if running else None
    return build(plan_of(made, repeats=3), runs, status, running=running, session=session, id="x")


def text(rows: list[Row]) -> list[str]:
    return ["".join(span for span, _ in row).rstrip() for row in rows]


def line(rows: list[Row], start: str) -> str:
    return next(row for row in text(rows) if row.strip(" ▸*").startswith(start))


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_cell_is_a_line_and_fits(width: int) -> None:
    rows = body(Seen(sweep(RUNS)), width)

    one, two = line(rows, "1 GPU "), line(rows, "2 GPUs ")
    assert "3 282" in one
    assert "1.90x" in two
    assert "COMM 20%" in two
    assert "skipped this machine has 4 GPUs" in line(rows, "8 GPUs")
    table = rows[: len(cells((1, 2, 8))) + 2]
    assert all(row_width(row) <= width + 30 for row in table)  # a reason may be cut by the screen


def test_what_a_cpu_cannot_know_takes_no_room() -> None:
    known = text(body(Seen(sweep(RUNS)), 200))[1]
    unknown = sweep(RUNS)
    for cell in unknown["cells"]:
        cell |= {"energy_j_per_1000_samples": None, "memory_peak_bytes": None}

    assert "J/1000" in known
    assert "J/1000" not in text(body(Seen(unknown), 200))[1]


def test_the_loss_is_drawn_with_its_reasons() -> None:
    rows = text(body(Seen(sweep(RUNS)), 120))

    (title,) = (row for row in rows if "samples/s ideal" in row)
    assert title.strip().startswith("2 GPUs  6 244 of 6 564 samples/s ideal: 4.9 % lost")
    (comm,) = (row for row in rows if "exposed communication" in row)
    assert "━" in comm
    assert "ms of a step of" in comm
    drawn = "".join(text(body(Seen(sweep(RUNS)), 120, ASCII)))
    assert "━" not in drawn


def test_a_note_is_told_to_its_end() -> None:
    table = sweep(RUNS)
    table["notes"] = ["the runs were too short for verdicts " * 4 + "give --steps 20"]

    rows = body(Seen(table), 80)
    notes = [row for row in text(rows) if "too short" in row or "--steps" in row]
    assert len(notes) > 1 and all(len(row) <= 79 for row in notes)
    assert " ".join(notes).endswith(" --steps 20")


def test_the_run_that_goes_on_tells_its_step() -> None:
    table = sweep({"gpus=1": RUNS["gpus=1"]}, running="gpus=2")
    analysis = {"steps": 120, "progress": {"total_steps": 320}}

    told = line(body(Seen(table, True, analysis, 20.0), 120), "2 GPUs")
    assert told.endswith("step 120 of 320")
    assert line(body(Seen(table, True, None, 75.0), 120), "2 GPUs").endswith("starting 1:15")


def test_a_cell_that_failed_says_why_and_hostile_text_is_harmless() -> None:
    failed = {**FAILED, "reason": "\x1b[31mno [bold]room[/]"}
    rows = body(Seen(sweep({"gpus=1": [failed]})), 120)

    assert "failed" in line(rows, "1 GPU")
    assert "\x1b" not in "".join(text(rows))


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (Seen(live=True), "starting"),
        (Seen(sweep(RUNS), True), "6 runs, at most 3 more"),
        (Seen(sweep({}), False), "stopped: 0 runs"),
    ],
)
def test_the_header_says_how_far_it_is(seen: Seen, told: str) -> None:
    if seen.sweep is not None and seen.live:
        seen.sweep["cells"].pop()  # type: ignore[attr-defined]
        seen.sweep["progress"]["runs_left"] = 3  # type: ignore[index]
    assert told in "".join(text([header(seen, 100)]))


def test_the_footer_offers_what_there_is_to_do() -> None:
    assert "x stop" in text([footer(Seen(live=True), False, 80)])[0]
    assert "x stop" not in text([footer(Seen(live=False), False, 80)])[0]
    assert "measuring goes on" in text([footer(Seen(live=True), True, 80)])[0]


class Measuring:
    """A process that measures, as far as the screen can tell."""

    def __init__(self) -> None:
        self.is_alive = True
        self.stopped = 0
        self.why: str | None = None

    def stop(self) -> None:
        self.stopped += 1

    def trouble(self) -> str | None:
        return self.why


@pytest.fixture
def paths() -> SweepPaths:
    """A sweep whose second cell is being measured."""
    found = new_sweep("w")
    make(sessions_root() / "s", CASES["slow-loader"], 30)
    write_json(found.result, sweep({"gpus=1": RUNS["gpus=1"]}, running="gpus=2"))
    return found


def screen(app: SweepApp) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def until(app: SweepApp, condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, screen(app)
        await asyncio.sleep(0.01)


async def test_it_fills_as_the_sweep_does_and_asks_before_it_leaves(paths: SweepPaths) -> None:
    measuring = Measuring()
    app = SweepApp(paths, measuring)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(app, lambda: "step " in screen(app) and "▸ 2 GPUs" in screen(app))
        # another run ends
        write_json(paths.result, sweep(RUNS))
        await until(app, lambda: "4.9 % lost" in screen(app))
        await pilot.press("q")
        await until(app, lambda: "measuring goes on" in screen(app))
        await pilot.press("escape")
        await until(app, lambda: "q quit" in screen(app))
        await pilot.press("x")
        assert measuring.stopped == 1
        await pilot.press("q", "l")
    assert app.return_value == 0


async def test_when_nothing_is_measured_it_leaves_at_once(paths: SweepPaths) -> None:
    measuring = Measuring()
    measuring.is_alive, measuring.why = False, "cannot measure: no room"
    app = SweepApp(paths, measuring)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(app, lambda: "cannot measure: no room" in screen(app))
        await pilot.press("x")
        assert measuring.stopped == 0
        await pilot.press("q")
    assert app.return_value == 0


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_help_tells_the_keys_of_this_screen(paths: SweepPaths, size: tuple[int, int]) -> None:
    measuring = Measuring()
    app = SweepApp(paths, measuring)
    async with app.run_test(size=size) as pilot:
        await until(app, lambda: "step " in screen(app) and "? help" in screen(app))
        await pilot.press("question_mark")
        await until(app, lambda: "stop measuring; what was measured is kept" in screen(app))
        told = screen(app)
        assert "leave; measuring goes on" in told and "PgDn" in told and "paint" in told
        assert "pick a workload" not in told and "more lines below" not in told
        # keys act on what is on top, and what is below goes on
        write_json(paths.result, sweep(RUNS))
        await pilot.press("x", "down")
        await until(app, lambda: (app.seen.sweep or {}).get("progress", {}).get("session") is None)
        assert measuring.stopped == 0
        await pilot.press("question_mark")
        await until(app, lambda: "4.9 % lost" in screen(app) and "PgDn" not in screen(app))
        await pilot.press("x")
        assert measuring.stopped == 1
        await pilot.press("ctrl+c", "l")
    assert app.return_value == 0


async def test_a_long_table_scrolls(paths: SweepPaths) -> None:
    write_json(paths.result, sweep(RUNS))
    app = SweepApp(paths, Measuring())
    async with app.run_test(size=(80, 10)) as pilot:
        await until(app, lambda: "samples/s ideal" in screen(app))
        assert "other  " not in screen(app)
        await pilot.press("end")
        await until(app, lambda: "other  " in screen(app))
        await pilot.press("home")
        await until(app, lambda: "speed-up" in screen(app))


def test_a_damaged_table_is_no_reason_to_die(tmp_path: Path) -> None:
    rows = body(Seen(None, True, trouble="x"), 80)

    assert text(rows) == ["", " x"]
