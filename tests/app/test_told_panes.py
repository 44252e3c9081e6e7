"""What a script tells, on the panes: its own phases, epochs, the loss, and what it notes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.made_session import CASES, make
from app.test_panes import text
from torchtop.app.view import View
from torchtop.commands import plain
from torchtop.session.follow import Follower
from torchtop.session.snapshot import Snapshot
from torchtop.session.state import SessionState


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    root: Path = tmp_path_factory.mktemp("sessions") / "made"
    make(root, CASES["slow-loader"])
    return Follower(root).poll()


def changed(snapshot: Snapshot, **analysis: Any) -> View:
    return View(snapshot=replace(snapshot, analysis={**(snapshot.analysis or {}), **analysis}))


def test_the_scripts_own_phases_have_a_line(snapshot: Snapshot) -> None:
    own = {"validate": {"ms": 2.0, "share": 0.02}, "aug[b]ment": {"ms": 12.0, "share": 0.1}}

    shown = text(changed(snapshot, own_phases=own), "step", 100, 12)

    (line,) = [line for line in shown.splitlines() if line.startswith("own")]
    assert " ".join(line.split()) == "own aug[b]ment 12.0 ms 10 % validate 2.00 ms 2.0 %"
    assert not any(
        line.startswith("own") for line in text(View(snapshot=snapshot), "step").split("\n")
    )


def test_time_of_which_nothing_is_known_has_a_place_in_the_bar(snapshot: Snapshot) -> None:
    phases = {**(snapshot.analysis or {})["phases"], "unknown": {"ms": 60.0, "share": 0.3}}

    shown = text(changed(snapshot, phases=phases), "step", 100, 12)

    assert "?" in shown.splitlines()[0]
    assert "unknown" in shown and "30 %" in shown


def test_a_rate_of_ranks_that_train_alone_is_told_as_such(snapshot: Snapshot) -> None:
    view = changed(snapshot, throughput={"samples_per_s": 300.0, "steps_per_s": 9.0})
    assert view.snapshot is not None
    hint = {"kind": "hint", "what": "alone", "mono_ns": snapshot.now_ns, "message": "x"}
    alone = replace(view, snapshot=replace(view.snapshot, events=(*snapshot.events, hint)))

    assert "each alone" in text(alone, "throughput", 60, 8).splitlines()[0]
    assert "a rank" in text(alone, "throughput", 40, 8).splitlines()[0]
    assert "each alone" not in text(view, "throughput", 60, 8)


def test_without_a_total_the_epoch_tells_how_far_it_is(snapshot: Snapshot) -> None:
    at = {"epoch": 2, "epoch_batch": 120, "epoch_batches": 391, "epoch_eta_s": 95.0}
    view = changed(snapshot, progress={"step": 900, "total_steps": None, "eta_s": None, **at})

    shown = text(view, "throughput", 60, 8)

    assert "epoch 3 batch 120/391" in shown
    assert ("ends in 1:35" in shown) is snapshot.live
    assert " (epoch 3, batch 120/391)  " in plain.line(view.snapshot or snapshot)


@pytest.mark.parametrize("odd", ["x", None, [], {}, float("nan")])
def test_odd_values_are_no_epoch(snapshot: Snapshot, odd: Any) -> None:
    at = {"epoch": odd, "epoch_batch": odd, "epoch_batches": odd, "epoch_eta_s": odd}
    view = changed(snapshot, progress={"step": 900, "total_steps": None, **at})

    assert "epoch" not in text(view, "throughput", 60, 8)
    assert "epoch" not in plain.line(view.snapshot or snapshot)


def test_the_scripts_own_loss_comes_before_one_that_is_only_seen(snapshot: Snapshot) -> None:
    seen = changed(snapshot, scalars={"accuracy": 0.5, "loss (backward)": 2.25})
    told = changed(snapshot, scalars={"loss (backward)": 2.25, "train_loss": 1.5})

    assert "loss (backward) 2.25" in text(seen, "throughput", 60, 8)
    assert "train_loss 1.5" in text(told, "throughput", 60, 8)


def test_the_time_left_and_what_must_not_be_missed_are_in_the_plain_line(
    snapshot: Snapshot,
) -> None:
    progress = {"step": 99, "total_steps": 400, "eta_s": 65.0}
    found = [{"kind": "NOT FINITE", "severity": "critical"}, {"kind": "X", "severity": "note"}]
    view = changed(snapshot, step=99, progress=progress, findings=found)

    line = plain.line(view.snapshot or snapshot)

    assert "step 100/400 (1:05 left)" in line
    assert line.endswith("[NOT FINITE]")


def test_what_ranks_note_is_told_once_among_the_events() -> None:
    state = SessionState({"id": "x"})
    header = {"kind": "header", "mono_ns": 0}
    state.apply("nodes/here/events.jsonl", header)
    for rank in (0, 1):
        source = f"ranks/{rank}-0-1{rank}.jsonl"
        state.apply(source, {**header, "rank": rank, "attempt": 0, "wall_s": 1.0})
        halved = {
            "kind": "annotation",
            "mono_ns": 2_000_000_000,
            "step": 7,
            "text": "lr \x1b[31m/2",
        }
        state.apply(source, halved)
        spoilt = {"kind": "not_finite", "step": 8 + rank, "name": "loss", "value": "nan"}
        state.apply(source, {**spoilt, "mono_ns": 3_000_000_000})

    shown = text(View(snapshot=state.snapshot()), "events")

    assert shown.count("/2") == 1 and "\x1b" not in shown
    assert "loss is nan on rank 0, step 8" in shown
    assert "loss is nan on rank 1, step 9" in shown
