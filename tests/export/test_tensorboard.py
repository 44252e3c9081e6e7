"""Event files, read back by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.made_session import CASES, HOSTILE, make
from session.made import session, write
from torchtop.export.source import Source
from torchtop.export.tensorboard import write_events
from torchtop.session.load import load_paths
from torchtop.session.paths import SessionPaths
from torchtop.session.records import PHASES
from torchtop.session.tail import Tail

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

RECORDED = Path(__file__).parents[1] / "fixtures" / "sessions"


def exported(root: Path, tmp_path: Path) -> dict[str, Any]:
    """Each run's scalars by tag."""
    folder = tmp_path / "logs"
    write_events(Source(load_paths(SessionPaths(root))), folder)
    runs = {}
    for run in sorted(folder.iterdir()):
        reader = accumulator.EventAccumulator(str(run), size_guidance={"scalars": 0})
        reader.Reload()
        runs[run.name] = {tag: reader.Scalars(tag) for tag in reader.Tags()["scalars"]}
    return runs


def test_a_recorded_session(tmp_path: Path) -> None:
    root = RECORDED / "resnet50-cifar10"
    runs = exported(root, tmp_path)
    assert set(runs) == {"job", "rank-0", "rank-1"}
    job = runs["job"]
    wanted = {"loss", "accuracy", "throughput/samples_per_s", "step_ms/p95", "gpu/0/sm_active"}
    assert wanted | {f"phase_ms/{phase}" for phase in PHASES} <= set(job)

    analyses = [
        r for r in Tail(root / "analysis.jsonl").poll() if r["kind"] == "analysis" and r["window"]
    ]
    told = [(r["step"], r["throughput"]["samples_per_s"]) for r in analyses]
    read = [(event.step, event.value) for event in job["throughput/samples_per_s"]]
    assert read == [(step, pytest.approx(rate)) for step, rate in told]


def test_every_recorded_step_of_a_rank(tmp_path: Path) -> None:
    root = RECORDED / "comm-heavy"
    runs = exported(root, tmp_path)
    (file,) = (root / "ranks").glob("1-0-*[0-9].jsonl")
    steps = [r for r in Tail(file).poll() if r["kind"] == "steps"]
    numbers = [step for record in steps for step in record["step"]]
    backward = [us / 1e3 for record in steps for us in record["backward_us"]]
    read = runs["rank-1"]["phase_ms/backward"]
    assert [event.step for event in read] == numbers
    assert [event.value for event in read] == pytest.approx(backward)
    assert all(1_796_000_000 < event.wall_time < 1_797_000_000 for event in read)


def test_the_loss_has_its_own_steps(tmp_path: Path) -> None:
    runs = exported(RECORDED / "resnet50-cifar10", tmp_path)
    loss = runs["rank-0"]["loss"]
    assert (loss[0].step, loss[0].value) == (0, pytest.approx(2.690068))
    assert [e.step for e in loss] == sorted(e.step for e in loss)


def test_names_are_made_fit_and_missing_values_are_left_out(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", host="host-a")
    values = {HOSTILE: 1.0, "/val/loss": 2.0, "nan": None, "text": "x", "yes": True}
    told = [
        {"kind": "scalars", "step": 1, "values": values},
        {"kind": "scalars", "step": None, "values": {"loss": 1.0}},
        {"kind": "scalars", "step": -1, "values": {"loss": 1.0}},
        {"kind": "scalars", "step": 2, "values": [1]},
    ]
    write(paths.ranks / "3-0-9.jsonl", "process", *told, rank=3, attempt=0)
    runs = exported(paths.root, tmp_path)
    tags = set(runs["rank-3"])
    assert "val/loss" in tags and len(tags) == 2
    assert all(tag.isascii() and tag.isprintable() for tag in tags)


def test_several_nodes_have_their_gpus_apart(tmp_path: Path) -> None:
    runs = exported(make(tmp_path / "s", CASES["sixteen"], 12), tmp_path)
    tags = [tag for tag in runs["job"] if tag.endswith("sm_active")]
    assert len(tags) == 16
