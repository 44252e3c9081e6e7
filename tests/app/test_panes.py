"""The panes as pure functions: a session in, rows of text out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from app.fake_controller import CATALOG
from app.made_session import CASES, make, make_idle
from torchtop.app.charts.glyphs import ASCII
from torchtop.app.logs import LogTail
from torchtop.app.panes import bars, catalog, data, events, gpus, host, step, throughput, verdict
from torchtop.app.panes.silence import silences
from torchtop.app.text import Row, asciify, plain, row_width
from torchtop.app.view import ReplayPosition, View
from torchtop.session.follow import Follower
from torchtop.session.records import VERDICTS
from torchtop.session.replay import Replay

Body = Callable[[View, int, int], list[Row]]
BODIES: dict[str, Body] = {
    "verdict": verdict.body,
    "gpus": gpus.body,
    "step": step.body,
    "throughput": throughput.body,
    "data": data.body,
    "catalog": catalog.body,
    "host": host.body,
    "events": events.body,
}


@pytest.fixture(scope="module")
def view_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], View]:
    """The view of a made session by its case's name, each made once."""

    @cache
    def made(name: str) -> View:
        root = tmp_path_factory.mktemp("sessions") / name
        if name == "idle":
            make_idle(root, CASES["healthy"])
        elif name == "lost":
            make(root, CASES["healthy"], lock=True)
        else:
            make(root, CASES[name])
        snapshot = Follower(root).poll()
        return View(snapshot=snapshot, logs=LogTail(root / "logs").poll(), catalog=CATALOG)

    return made


def text(view: View, pane: str, width: int = 100, height: int = 30) -> str:
    return "\n".join(plain(row) for row in BODIES[pane](view, width, height))


@pytest.mark.parametrize("name", [*CASES, "idle"])
def test_every_pane_draws_every_session_within_its_size(
    view_of: Callable[[str], View], name: str
) -> None:
    view = view_of(name)
    for pane, width, height in (
        (pane, width, height)
        for pane in BODIES
        for width in (20, 30, 44, 78, 118, 198)
        for height in (1, 3, 5, 9, 30)
    ):
        rows = BODIES[pane](view, width, height)
        assert len(rows) <= height, (pane, width, height)
        for row in rows:
            assert row_width(row) == width, (pane, width, height, plain(row))
            assert plain(row).isprintable(), (pane, plain(row))


@pytest.mark.parametrize("name", ["hostile", "eight", "failed"])
def test_in_ascii_every_cell_is_ascii(view_of: Callable[[str], View], name: str) -> None:
    view = replace(view_of(name), glyphs=ASCII)
    for draw in BODIES.values():
        for row in draw(view, 78, 20):
            drawn = asciify(plain(row))
            assert drawn.isascii()
            assert len(drawn) == 78


def test_before_anything_is_read_the_panes_are_calm() -> None:
    for draw in BODIES.values():
        draw(View(), 40, 5)
    assert "reading" in text(View(), "verdict")


class TestVerdict:
    def test_says_what_holds_the_run_back(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("slow-loader"), "verdict")
        assert "CRITICAL" in shown and "DATA" in shown
        assert "Waiting for data: 38 % of each step." in shown
        assert "38 % of step time" in shown and "up to 1.6x faster" in shown
        assert "queue was empty" in shown
        assert "→ raise workers from 4 to 10" in shown

    def test_keeps_evidence_and_advice_in_four_lines(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("slow-loader"), "verdict", 78, 4)
        assert "45.2 ms" in shown and "→ raise workers" in shown
        assert "up to 1.6x faster" in shown

    def test_a_healthy_run_is_told_so(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("healthy"), "verdict")
        assert "✓ HEALTHY" in shown and "faster" not in shown.replace("faster kernels", "")

    def test_undecided_is_told_with_its_evidence(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("undecided"), "verdict")
        assert "UNDECIDED" in shown and "neither starved nor far behind" in shown

    def test_a_straggler_is_named_with_its_phase(self, view_of: Callable[[str], View]) -> None:
        assert "rank 5 in optimizer" in text(view_of("straggler"), "verdict")

    def test_a_long_headline_is_wrapped_and_not_cut(self, view_of: Callable[[str], View]) -> None:
        shown = " ".join(text(view_of("straggler"), "verdict", 78, 4).split())
        assert "the others wait 29 ms of each step." in shown

    @pytest.mark.parametrize("kind", VERDICTS)
    @pytest.mark.parametrize("share", [None, 0.38])
    def test_every_kind_is_named_beside_a_headline_of_two_lines(
        self, view_of: Callable[[str], View], kind: str, share: float | None
    ) -> None:
        headline = "No rank has moved for 41 s: rank 1 is in backward, and all of the others wait"
        told = {"kind": kind, "severity": "critical", "share": share, "headline": headline}
        view = TestBeforeTheVerdict.with_analysis(view_of("healthy"), verdict=told)
        for height in (4, 5):
            shown = text(view, "verdict", 78, height)
            assert kind in shown
            assert "wait" in shown.split() and "…" not in shown

    @pytest.mark.parametrize("height", [4, 5])
    def test_a_headline_too_long_for_the_place_beside_its_label_goes_on_under_it(
        self, view_of: Callable[[str], View], height: int
    ) -> None:
        headline = (
            "Waiting for data 40 % of each step: up to 1.7x faster with a perfect loader; batches "
            "are made in the training process (num_workers=0)"
        )
        view = TestBeforeTheVerdict.with_analysis(
            view_of("slow-loader"),
            verdict={"kind": "DATA", "share": 0.4, "gain_bound": 1.667, "headline": headline},
        )
        shown = text(view, "verdict", 80, height)
        assert "…" not in shown and "DATA" in shown
        assert shown.splitlines()[1].rstrip().endswith("(num_workers=0)")

    def test_a_sentence_goes_on_in_the_next_row_where_there_is_room(
        self, view_of: Callable[[str], View]
    ) -> None:
        sentence = "the GPU waits for a batch 74.8 ms of a 78.8 ms step; the ranks wait 27.3 ms"
        told = {"kind": "DATA", "headline": "Waiting", "evidence": [sentence, "more"]}
        view = TestBeforeTheVerdict.with_analysis(view_of("slow-loader"), verdict=told)
        assert " · the GPU waits for a batch 74.8 ms …" in text(view, "verdict", 50, 3)
        shown = " ".join(text(view, "verdict", 50, 4).split())
        assert sentence in shown

    def test_says_how_long_it_has_stood(self, view_of: Callable[[str], View]) -> None:
        assert plain(verdict.aside(view_of("slow-loader"), 78)) == "for 1:07"

    def test_warm_up_is_counted(self, view_of: Callable[[str], View]) -> None:
        assert "6 of 10 steps" in text(view_of("warming"), "verdict")

    def test_a_start_says_how_far_it_has_come(self, view_of: Callable[[str], View]) -> None:
        assert "STARTING   ranks started, importing torch" in text(view_of("starting"), "verdict")

    def test_findings_are_among_the_events(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("findings"), "events", 78, 12)
        assert "finding THROTTLED of rank 1: critical" in shown
        assert "finding CONTENTION of rank 0: note" in shown

    def test_a_disk_that_fills_up_is_told(self, view_of: Callable[[str], View]) -> None:
        # given a start with a warning, and a disk that was nearly full for a while
        view = view_of("slow-loader")
        assert view.snapshot is not None
        disk = {"kind": "disk", "host": "node", "mono_ns": view.snapshot.now_ns}
        full = {**disk, "level": "full", "free_bytes": 40 << 20, "telemetry": False}
        cut = {"kind": "log_cut", "file": "logs/\x1b[31m/stdout.log", "mono_ns": disk["mono_ns"]}
        meta = {**view.snapshot.meta, "warnings": ["another \x1b[31msession runs here"]}
        snapshot = replace(view.snapshot, meta=meta, events=(*view.snapshot.events, full, cut))
        shown = text(replace(view, snapshot=snapshot), "events", 100, 30)
        assert "session runs here" in shown and "\x1b" not in shown
        assert "the disk has 40.0 MiB left: nothing is recorded until there is room" in shown
        assert "stdout.log was too long: its middle was removed" in shown
        assert "disk full" in plain(bars.header(replace(view, snapshot=snapshot), 140))
        # and where there is room again nothing is left on screen
        again = replace(snapshot, events=(*snapshot.events, {**disk, "level": "ok"}))
        assert "disk" not in plain(bars.header(replace(view, snapshot=again), 140))

    def test_a_lost_session_says_so(self, view_of: Callable[[str], View]) -> None:
        view = view_of("lost")
        assert view.snapshot is not None and view.snapshot.status == "lost"
        assert "lost" in plain(bars.header(view, 100))

    def test_a_silent_rank_is_told_above_an_old_verdict(
        self, view_of: Callable[[str], View]
    ) -> None:
        view = view_of("hung")
        assert text(view, "verdict").splitlines()[0].split("SILENT")[1].strip() == (
            "rank 1 last seen in backward, 55 s ago"
        )
        assert plain(verdict.aside(view, 78)) == "as of 55 s ago"


class TestFindings:
    def test_the_heading_names_the_first_and_counts_the_others(
        self, view_of: Callable[[str], View]
    ) -> None:
        told = plain(verdict.aside(view_of("findings"), 78))
        assert told == "◆ THROTTLED +1 · for 1:07"

    def test_with_little_room_the_first_stands_between_evidence_and_advice(
        self, view_of: Callable[[str], View]
    ) -> None:
        lines = text(view_of("findings"), "verdict", 78, 5).splitlines()
        assert "45.2 ms" in lines[2]
        assert lines[3].startswith(" ◆ THROTTLED +1  GPU 1 is slowed down by hw_thermal")
        assert lines[4].startswith(" → raise workers")

    def test_four_rows_are_the_verdicts_own(self, view_of: Callable[[str], View]) -> None:
        assert "THROTTLED" not in text(view_of("findings"), "verdict", 78, 4)

    def test_with_room_each_has_its_evidence_and_advice(
        self, view_of: Callable[[str], View]
    ) -> None:
        shown = text(view_of("findings"), "verdict", 78, 22)
        told = [
            *("queue was empty", "◆ THROTTLED  GPU 1", "held down in", "check the cooling"),
            *("○ CONTENTION  GPU 0 is shared", "jupyter (pid 77)", "--gpu-ids", "raise workers"),
        ]
        places = [shown.index(word) for word in told]
        assert places == sorted(places)

    def test_none_is_told_where_there_is_none(self, view_of: Callable[[str], View]) -> None:
        assert plain(verdict.aside(view_of("healthy"), 78)) == "for 1:07"


class TestFailure:
    def test_names_rank_cause_and_message(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("failed"), "verdict", 100, 9)
        assert "✗ FAILED" in shown
        assert "rank 1 ran out of GPU memory" in shown
        assert "Tried to allocate 2.25 GiB" in shown
        assert "· at train.py:61 in main, after 1:15 and " in shown
        assert "→ a smaller batch" in shown
        assert shown.splitlines()[-1].strip().startswith("torch.OutOfMemoryError")

    def test_memory_is_told_where_it_ran_out(self, view_of: Callable[[str], View]) -> None:
        view = view_of("failed")
        assert view.snapshot is not None
        memory = {"allocated_bytes": 2**37, "reserved_bytes": 2**37 + 2**30, "peak_bytes": None}
        ranks = tuple(replace(rank, memory=memory) for rank in view.snapshot.ranks)
        view = replace(view, snapshot=replace(view.snapshot, ranks=ranks))
        told = "GPU memory, last seen: 128 GiB allocated, 129 GiB reserved"
        assert told in text(view, "verdict", 100, 9)

    @pytest.mark.parametrize("height", range(1, 14))
    def test_the_most_important_comes_first(
        self, view_of: Callable[[str], View], height: int
    ) -> None:
        shown = text(view_of("failed"), "verdict", 78, height).splitlines()
        assert len(shown) <= height and "FAILED" in shown[0]
        assert height < 5 or any("→" in line for line in shown)

    def test_the_events_tell_the_order(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("failed"), "events", 100, 8)
        assert "rank 1 ended: status 1" in shown
        assert "rank 0 ended by SIGTERM" in shown
        assert "exit: out_of_memory" in shown and "session failed" in shown

    def test_a_run_that_ended_as_meant_is_no_failure(self, view_of: Callable[[str], View]) -> None:
        assert "FAILED" not in text(view_of("done"), "verdict")


class TestGpus:
    def test_a_row_says_all_of_a_gpu(self, view_of: Callable[[str], View]) -> None:
        row = text(view_of("eight"), "gpus", 118, 9).splitlines()[2].split()
        assert row[:2] == ["r1", "1"]
        assert {"54%", "41.2/140", "307/700"} <= set(row)

    def test_the_titles_stand_on_the_rule_when_no_row_is_left(
        self, view_of: Callable[[str], View]
    ) -> None:
        view = view_of("eight")
        assert gpus.titles(view, 78, 9) == []
        assert plain(gpus.titles(view, 78, 8)).split()[:4] == ["rank", "GPU", "SM", "active"]

    def test_throttling_and_processes_of_others_are_told(
        self, view_of: Callable[[str], View]
    ) -> None:
        shown = text(view_of("eight"), "gpus", 178, 9).splitlines()
        assert "sw power cap" in shown[2]
        assert "1 other: 3.0G" in shown[1]
        assert text(view_of("eight"), "gpus", 78, 8).splitlines()[1].split()[-1] == "power"

    def test_what_a_gpu_cannot_tell_has_no_column(self, view_of: Callable[[str], View]) -> None:
        assert "tens" not in text(view_of("old-gpus"), "gpus", 118, 9)
        assert "tens" in text(view_of("eight"), "gpus", 118, 9)

    def test_a_missing_value_is_a_dash_and_no_zero(self, view_of: Callable[[str], View]) -> None:
        view = view_of("healthy")
        assert view.snapshot is not None
        blind = replace(view.snapshot.gpus[0], now={"power_w": None}, series={})
        seen = view.snapshot.gpus[1]
        snapshot = replace(view.snapshot, gpus=(blind, seen))
        row = text(replace(view, snapshot=snapshot), "gpus", 118, 9).splitlines()[1]
        assert "–/700" in row and "0%" not in row

    def test_sixteen_gpus_stand_in_pairs(self, view_of: Callable[[str], View]) -> None:
        lines = text(view_of("sixteen"), "gpus", 78, 8).splitlines()
        assert len(lines) == 8
        assert "r0 " in lines[0] and "r8 " in lines[0]
        assert "r15" in lines[7]

    def test_old_data_is_told_as_old(self, view_of: Callable[[str], View]) -> None:
        view = view_of("healthy")
        assert view.snapshot is not None
        old = tuple(replace(gpu, age_s=12.0) for gpu in view.snapshot.gpus)
        shown = text(replace(view, snapshot=replace(view.snapshot, gpus=old)), "gpus", 118, 9)
        assert shown.count("12 s old") == 2

    def test_with_room_every_gpu_has_a_chart(self, view_of: Callable[[str], View]) -> None:
        lines = text(view_of("healthy"), "gpus", 78, 15).splitlines()
        assert [line[0] for line in lines if line.startswith("r") and line[1].isdigit()] == [
            "r"
        ] * 2
        assert sum(line.startswith("SM active") for line in lines) == 2
        assert sum("█" * 20 in line for line in lines) >= 4

    def test_without_a_gpu_the_reason_and_the_host_are_shown(
        self, view_of: Callable[[str], View]
    ) -> None:
        shown = text(view_of("cpu"), "gpus", 78, 6)
        assert "no GPU: NVML library not found" in shown
        assert "CPU" in shown and "memory" in shown


class TestStep:
    def test_phases_have_time_and_share(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("slow-loader"), "step", 100, 12)
        assert "data" in shown and "38 %" in shown
        assert "exposed comm" in shown and "2.6 %" in shown
        assert "118 ms" in shown

    def test_every_rank_has_its_bar(self, view_of: Callable[[str], View]) -> None:
        lines = text(view_of("straggler"), "step", 100, 16).splitlines()
        assert [f"r{i}" for i in range(8)] == [line.split()[0] for line in lines if line[0] == "r"]

    def test_with_little_room_the_named_rank_is_kept(self, view_of: Callable[[str], View]) -> None:
        lines = text(view_of("straggler"), "step", 44, 7).splitlines()
        assert "r5" in [line.split()[0] for line in lines if line[0] == "r"]

    def test_without_colour_phases_are_spelled_out(self, view_of: Callable[[str], View]) -> None:
        view = replace(view_of("slow-loader"), textured=True)
        assert "Ddddd" in text(view, "step").splitlines()[0]

    def test_percentiles_lie_on_the_chart(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("slow-loader"), "step", 100, 20)
        assert "p50" in shown and "p95" in shown
        assert "p50 74.6" in plain(step.aside(view_of("slow-loader"), 78))

    def test_a_silent_rank_says_where_it_was_seen(self, view_of: Callable[[str], View]) -> None:
        assert "r1   last seen in backward, 55 s ago" in text(view_of("hung"), "step", 60, 12)
        assert [s.rank for s in silences(view_of("hung").snapshot)] == [1]

    @pytest.mark.parametrize(
        ("steps", "cells", "per"), [(0, 40, 1), (40, 40, 1), (41, 40, 2), (2000, 40, 64)]
    )
    def test_a_column_is_a_power_of_two_of_steps(self, steps: int, cells: int, per: int) -> None:
        assert step.steps_per_column(steps, cells) == per


class TestThroughput:
    def test_rate_progress_and_loss(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("slow-loader"), "throughput", 60, 8)
        assert "2 165 samples/s" in shown
        assert "step 607/20 000" in shown and "3.0 %" in shown and "ETA 38:13" in shown
        assert "loss 1.367" in shown

    def test_tokens_are_told_where_there_are_any(self, view_of: Callable[[str], View]) -> None:
        assert "4.49 M tokens/s" in text(view_of("gpt"), "throughput", 60, 8)

    def test_at_its_smallest_it_keeps_rate_step_and_eta(
        self, view_of: Callable[[str], View]
    ) -> None:
        shown = text(view_of("eight"), "throughput", 30, 3)
        assert "samples/s" in shown and "ETA" in shown and "loss" in shown and "…" not in shown

    def test_steps_are_counted_as_done_and_not_as_indices(
        self, view_of: Callable[[str], View]
    ) -> None:
        view = TestBeforeTheVerdict.with_analysis(
            view_of("slow-loader"), step=29, progress={"step": 29, "total_steps": 30, "eta_s": 0.0}
        )
        shown = text(view, "throughput", 60, 8)
        assert "step 30/30" in shown and "100 %" in shown

    @pytest.mark.parametrize(("width", "height"), [(30, 3), (60, 8), (60, 20)])
    def test_what_is_not_known_takes_no_room(
        self, view_of: Callable[[str], View], width: int, height: int
    ) -> None:
        starting = view_of("starting").snapshot
        assert starting is not None
        nothing = {"steps": 0, "step": None, "throughput": {"samples_per_s": None}, "progress": {}}
        view = View(snapshot=replace(starting, analysis=nothing))
        assert text(view, "throughput", width, height).split() == ["nothing", "measured", "yet"]
        # once there are steps, of a run whose length and batches nothing tells
        view = TestBeforeTheVerdict.with_analysis(
            view, step=411, steps=412, throughput={"steps_per_s": 19.5}
        )
        shown = text(view, "throughput", width, height)
        assert "19.5 steps/s" in shown and "step 412" in shown
        assert "unknown" not in shown and "–" not in shown
        assert plain(throughput.aside(view, width)) == ""  # not twice
        view = TestBeforeTheVerdict.with_analysis(view, throughput={}, step=None, steps=412)
        assert text(view, "throughput", width, height).split() == ["rate", "not", "known"]
        # and before the first step of a run that has told its length
        view = TestBeforeTheVerdict.with_analysis(view, steps=0, progress={"total_steps": 500})
        assert "of 500 steps" in text(view, "throughput", width, height)


class TestData:
    @pytest.mark.parametrize(("width", "height"), [(30, 3), (30, 5), (60, 6)])
    def test_stall_queue_and_workers(
        self, view_of: Callable[[str], View], width: int, height: int
    ) -> None:
        shown = text(view_of("slow-loader"), "data", width, height)
        assert "stall 38 % 45" in shown and "next() 36" in shown
        assert "queue" in shown and "workers 4" in shown
        assert "batch 128" in shown and "prefetch 2" in shown and "pinned" in shown
        assert "…" not in shown

    def test_busy_workers_are_a_warning(self, view_of: Callable[[str], View]) -> None:
        spans = [span for row in data.body(view_of("slow-loader"), 60, 6) for span in row]
        assert any(style == "warn" and "99" in told for told, style in spans)

    def test_synthetic_data_is_told(self, view_of: Callable[[str], View]) -> None:
        assert plain(data.aside(view_of("slow-loader"), 30)) == "synthetic data"

    def test_a_loader_that_was_not_recognised_is_told(self, view_of: Callable[[str], View]) -> None:
        view = view_of("slow-loader")
        assert view.snapshot is not None
        ranks = tuple(replace(rank, loaders=()) for rank in view.snapshot.ranks)
        snapshot = replace(view.snapshot, ranks=ranks)
        assert "loader not recognised" in text(replace(view, snapshot=snapshot), "data")
        # but not before there was a step to recognise one in
        starting = replace(snapshot, analysis={**(snapshot.analysis or {}), "steps": 0})
        assert text(replace(view, snapshot=starting), "data").split() == ["no", "batch", "yet"]


class TestHost:
    def test_says_processor_memory_disk_and_network(self, view_of: Callable[[str], View]) -> None:
        shown = text(view_of("slow-loader"), "host", 60, 10)
        for word in ("CPU", "load", "cores", "memory", "38.4/256 GiB", "disk", "network"):
            assert word in shown

    def test_each_core_has_its_column(self, view_of: Callable[[str], View]) -> None:
        cores = text(view_of("slow-loader"), "host", 60, 10).split("cores")[1].splitlines()[0]
        assert len(cores.replace(" ", "")) == 32

    def test_several_nodes_have_a_line_each(self, view_of: Callable[[str], View]) -> None:
        lines = text(view_of("sixteen"), "host", 78, 10).splitlines()
        assert [line.split()[0] for line in lines] == ["gpu-node-0", "gpu-node-1"]


class TestLines:
    def test_the_header_says_who_how_long_and_at_what_cost(
        self, view_of: Callable[[str], View]
    ) -> None:
        shown = plain(bars.header(view_of("slow-loader"), 80))
        words = " ".join(shown.split())
        assert words == "torchtop slow-loader ● running 1:14 2 ranks cuda probe 0.8 %"

    def test_old_data_and_bad_lines_are_marked(self, view_of: Callable[[str], View]) -> None:
        assert "55 s old" in plain(bars.header(view_of("hung"), 80))
        assert "3 bad lines" in plain(bars.header(view_of("hostile"), 80))

    def test_pause_replay_and_interval_are_marked(self, view_of: Callable[[str], View]) -> None:
        view = replace(view_of("slow-loader"), paused=True, interval_s=2.0)
        assert "PAUSED" in plain(bars.header(view, 110))
        assert "every 2 s" in plain(bars.header(view, 110))
        view = replace(view, replay=ReplayPosition(75.0, 600.0, playing=True))
        assert "REPLAY  01:15 of 10:00" in plain(bars.header(view, 110))

    @pytest.mark.parametrize("width", range(20, 130, 7))
    def test_help_and_quit_never_leave_the_footer(
        self, view_of: Callable[[str], View], width: int
    ) -> None:
        keys = {"workload": "1-9", "stop": "x", "start": "s", "help": "?", "quit": "q", "logs": "l"}
        shown = plain(bars.footer(view_of("slow-loader"), width, keys))
        assert "? help" in shown and "q quit" in shown and "…" not in shown

    def test_the_footer_says_what_is_being_done(self, view_of: Callable[[str], View]) -> None:
        view = replace(view_of("slow-loader"), busy="stopping slow-loader ... 4 s")
        assert "stopping slow-loader ... 4 s" in plain(bars.footer(view, 80, {"quit": "q"}))

    def test_what_cannot_be_done_is_not_offered(self, view_of: Callable[[str], View]) -> None:
        keys = {"stop": "x", "start": "s", "quit": "q"}
        assert "stop" not in plain(bars.footer(view_of("idle"), 80, keys))
        assert "start" not in plain(bars.footer(view_of("slow-loader"), 80, keys))

    def test_a_step_is_offered_for_inspection_first_where_the_host_waits(
        self, view_of: Callable[[str], View]
    ) -> None:
        keys = {"stop": "x", "inspect": "i"}
        assert "i inspect" in plain(bars.footer(view_of("sync"), 14, keys))
        assert "inspect" not in plain(bars.footer(view_of("healthy"), 14, keys))
        assert "inspect" not in plain(bars.footer(view_of("done"), 80, keys))


def test_the_events_tell_the_story(view_of: Callable[[str], View]) -> None:
    shown = text(view_of("slow-loader"), "events", 60, 10)
    assert "00:00   supervisor started on gpu-node-0" in shown
    assert "2 ranks up" in shown and "verdict DATA: critical" in shown


def test_the_catalog_shows_keys_summaries_and_problems(view_of: Callable[[str], View]) -> None:
    shown = text(view_of("idle"), "catalog", 78, 10)
    assert "1  resnet50-cifar10  ResNet-50 on CIFAR-10" in shown
    assert "mine" in shown and "train.py is not there" in shown


def test_a_replay_shows_the_session_as_it_was() -> None:
    replay = Replay(make(Path(mkdtemp()) / "s", CASES["failed"]))
    early = View(snapshot=replay.at(replay.start_ns + 15_000_000_000))
    assert "HEALTHY" in text(early, "verdict")
    assert "FAILED" in text(View(snapshot=replay.at(replay.end_ns)), "verdict")


class TestBeforeTheVerdict:
    @staticmethod
    def with_analysis(view: View, **changes: object) -> View:
        assert view.snapshot is not None and view.snapshot.analysis is not None
        analysis = {**view.snapshot.analysis, **changes}
        return replace(view, snapshot=replace(view.snapshot, analysis=analysis))

    def test_warm_up_is_told_in_the_analysts_words(self, view_of: Callable[[str], View]) -> None:
        headline = "Warming up: 20 of 20 steps, 1 of 5 s"
        view = self.with_analysis(
            view_of("warming"), verdict={"kind": "UNDECIDED", "headline": headline}
        )
        assert "WARMING UP   20 of 20 steps, 1 of 5 s" in text(view, "verdict")

    def test_what_is_missing_after_the_warm_up_is_told_as_measuring(
        self, view_of: Callable[[str], View]
    ) -> None:
        headline = "Measuring: 1 s more until the first verdict"
        view = self.with_analysis(view_of("warming"), verdict={"headline": headline})
        assert "○ MEASURING   1 s more until the first verdict" in text(view, "verdict")

    def test_a_start_is_no_undecided_verdict(self, view_of: Callable[[str], View]) -> None:
        view = self.with_analysis(
            view_of("warming"), steps=0, verdict={"kind": "UNDECIDED", "headline": "no step"}
        )
        assert view.snapshot is not None
        view = replace(view, snapshot=replace(view.snapshot, status="starting"))
        assert "STARTING" in text(view, "verdict") and "UNDECIDED" not in text(view, "verdict")

    def test_in_four_rows_nothing_is_said_twice(self, view_of: Callable[[str], View]) -> None:
        view = view_of("slow-loader")
        assert view.snapshot is not None and view.snapshot.verdict
        headline = "Waiting for data 38 % of each step: up to 1.6x faster with a perfect loader"
        view = self.with_analysis(view, verdict={**view.snapshot.verdict, "headline": headline})
        shown = text(view, "verdict", 78, 4)
        assert shown.count("38 %") == 1
        assert "45.2 ms" in shown and "→ raise workers" in shown
