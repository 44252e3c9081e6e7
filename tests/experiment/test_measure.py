"""Measurements of sessions that were recorded on two H200s."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from torchtop.cli import main
from torchtop.experiment.accounting import Measured, explain
from torchtop.experiment.costs import Costs
from torchtop.experiment.measure import run_of
from torchtop.experiment.steps import NotMeasuredError, Recorded, read_steps
from torchtop.session.paths import SessionPaths
from torchtop.session.records import PHASES
from torchtop.session.summary import build_summary
from torchtop.session.tail import SessionTail

FIXTURES = Path(__file__).parents[1] / "fixtures" / "sessions"
NAMES = ("resnet50-cifar10", "compute-heavy", "slow-loader", "comm-heavy", "straggler")


def measured(name: str, warm_up: int = 20) -> dict[str, Any]:
    run = run_of(SessionPaths(FIXTURES / name), warm_up)
    assert run["status"] == "done", run
    found: dict[str, Any] = run["measured"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_gives_a_measurement_that_agrees_with_itself(name: str) -> None:
    run = measured(name)

    assert sum(run["phases"][phase] for phase in PHASES) == pytest.approx(run["step_ms"])
    costs = Costs.from_json(run["costs"])
    assert costs is not None
    whole = sum(costs.work_ms.values()) + costs.straggler_ms + costs.comm_ms
    assert whole == pytest.approx(run["step_ms"])
    assert (costs.ranks, costs.cuda) == (2, True)
    assert run["samples_per_s"] == pytest.approx(run["batch"] / run["step_ms"] * 1e3)
    assert 200 < run["power_w"] < 1500
    assert run["energy_j_per_1000_samples"] == pytest.approx(
        1000 * run["power_w"] / run["samples_per_s"]
    )
    assert run["memory_peak_bytes"] > 50 << 20
    assert (run["versions"]["gpu"], run["versions"]["cudnn"]) == ("NVIDIA H200", "9.19.0")
    assert run["versions"]["nccl"]


def test_what_the_recordings_show_is_what_their_steps_consist_of() -> None:
    costs = {name: Costs.from_json(measured(name)["costs"]) for name in NAMES}

    def of(name: str) -> Costs:
        found = costs[name]
        assert found is not None
        return found

    def idle(name: str) -> float:
        return sum((of(name).idle_ms or {}).values()) / of(name).step_ms

    assert of("straggler").straggler_ms == pytest.approx(27, abs=1.5)
    assert of("comm-heavy").comm_ms == pytest.approx(3.8, abs=0.2)
    assert of("slow-loader").work_ms["data"] > 0.9 * of("slow-loader").step_ms
    assert idle("resnet50-cifar10") > 0.8
    assert idle("compute-heavy") < 0.01
    # The other rank seems to wait for half of the step, and only hides its own launches.
    assert of("resnet50-cifar10").straggler_ms < 0.1 * of("resnet50-cifar10").step_ms


def test_two_gpus_against_one_as_measured_by_hand() -> None:
    """One H200 took 14.0 ms for a batch of 256, and 0.56x was left of two."""
    costs = Costs.from_json(measured("resnet50-cifar10")["costs"])
    assert costs is not None
    work = {"data": 0.1, "forward": 4.6, "backward": 8.0, "optimizer": 0.9, "other": 0.2}
    idle = {name: ms for name, ms in work.items() if name != "data"}
    alone = Costs(14.0, {**work, "pre_optimizer": 0.1}, idle, comm_ms=0.1, comm_idle_ms=0.1)
    base = Measured("one", alone, 256, 1, "ddp")
    reference = Measured("half", alone, 128, 1, "ddp")
    loss = explain(base, reference, Measured("two", costs, 256, 2, "ddp"))

    points = {part["key"]: part["points"] for part in loss["parts"]}
    assert sum(points.values()) == pytest.approx(loss["lost_points"])
    assert loss["lost_points"] > 70
    assert max(points, key=lambda key: points[key]) == "launch"
    assert 4 < points["exposed_comm"] < 8
    assert abs(points["other"]) < 5


def rewritten(root: Path, name: str, change: Callable[[dict[str, Any]], None]) -> SessionPaths:
    """A copy of a recording in which records of its ranks are others."""
    shutil.copytree(FIXTURES / name, root)
    for file in (root / "ranks").glob("*.jsonl"):
        records = [json.loads(line) for line in file.read_text().splitlines()]
        for record in records:
            change(record)
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return SessionPaths(root)


def test_where_batches_differ_all_steps_count_and_show_says_the_same(tmp_path: Path) -> None:
    # given ranks whose batches are larger in the steps that are only counted
    def more(record: dict[str, Any]) -> None:
        if record["kind"] == "totals":
            record["samples"] = record["samples"] * 3 // 2

    paths = rewritten(tmp_path / "x", "comm-heavy", more)
    assert main(["analyse", str(paths.root)]) == 0

    run = run_of(paths, 10)["measured"]
    before = measured("comm-heavy", 10)
    assert run["samples_per_s"] == pytest.approx(1.5 * before["samples_per_s"], rel=0.01)
    assert (run["batch"], run["step_ms"]) == (before["batch"], before["step_ms"])
    told = build_summary(paths)["throughput"]["samples_per_s"]
    assert run["samples_per_s"] == pytest.approx(told, rel=0.01)


def test_where_every_step_is_recorded_their_own_batches_count(tmp_path: Path) -> None:
    # given a last batch of each epoch that is smaller, and totals that reach into the warm-up
    def less(record: dict[str, Any]) -> None:
        if record["kind"] == "steps":
            record["samples"] = [64 if step % 5 else 4 for step in record["step"]]
        elif record["kind"] == "totals":
            record["samples"] = 1_000_000

    paths = rewritten(tmp_path / "x", "resnet50-cifar10", less)
    recorded = read_steps(SessionTail(paths).poll(), 20)
    some = Recorded(recorded.ranks, recorded.steps[:50])
    assert some.count == 49
    sizes = [2 * (64 if step.step % 5 else 4) for step in some.steps[1:]]
    assert some.per_s("samples") == pytest.approx(1e3 * fmean(sizes) / some.step_ms)
    assert some.usual("samples") == 128


def test_totals_of_a_rank_that_does_not_know_its_samples_leave_the_recorded(
    tmp_path: Path,
) -> None:
    def unknown(record: dict[str, Any]) -> None:
        if record["kind"] == "totals":
            record["samples"] = None

    run = run_of(rewritten(tmp_path / "x", "comm-heavy", unknown), 20)["measured"]
    assert run["samples_per_s"] == pytest.approx(run["batch"] / run["step_ms"] * 1e3)


def test_a_session_that_is_too_short_says_so() -> None:
    run = run_of(SessionPaths(FIXTURES / "compute-heavy"), 10_000)

    assert (run["status"], run["measured"]) == ("failed", None)
    assert "10000 are warm-up: raise --steps" in run["reason"]


def test_a_session_without_a_rank_says_so(tmp_path: Path) -> None:
    root = tmp_path / "x"
    shutil.copytree(FIXTURES / "compute-heavy", root)
    for file in (root / "ranks").glob("1-*"):
        file.unlink()

    with pytest.raises(NotMeasuredError, match="only 1 of 2 ranks"):
        read_steps(SessionTail(SessionPaths(root)).poll(), 20)


def test_the_last_launch_of_a_command_is_measured() -> None:
    # given a launch of two ranks, and then one of rank 0 alone
    first = list(SessionTail(SessionPaths(FIXTURES / "comm-heavy")).poll())
    again = [
        (source.replace("0-0-", "0-1-"), {**record, "attempt": 1, "first_attempt": 1})
        for source, record in first
        if source.startswith("ranks/0-")
    ]
    alone = [(s, {**r, "world_size": 1} if r["kind"] == "header" else r) for s, r in again]

    recorded = read_steps([*first, *alone], 20)

    assert list(recorded.ranks) == [0]
    assert recorded.first.header["attempt"] == 1


def test_the_span_of_the_steps_is_the_devices_and_counts_those_between() -> None:
    recorded = read_steps(SessionTail(SessionPaths(FIXTURES / "comm-heavy")).poll(), 20)

    assert len(recorded.steps) < recorded.count
    # Its host runs 80 ms ahead of the device at the end, as at the start.
    assert recorded.step_ms == pytest.approx(recorded.window.step_us / 1e3, rel=0.01)
