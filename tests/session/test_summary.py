"""The summary of a small made-up session whose right values are worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session.made import session, write
from torchtop.session.paths import SessionPaths
from torchtop.session.progress import progress
from torchtop.session.records import PHASES, latency_bucket
from torchtop.session.report import render_markdown
from torchtop.session.summary import build_summary, status_of, write_summary

S = 1_000_000_000

SUMMARY_KEYS = (
    *("schema", "id", "name", "workload", "argv", "options", "synthetic_data", "status"),
    *("started_at", "wall_s", "exit", "world_size", "nodes", "device", "versions", "gpus"),
    *("steps", "step_ms", "throughput", "phases", "ranks", "verdicts", "verdict", "findings"),
    *("probe", "loss"),
)


def phases_us(data: int, forward: int, backward: int, comm: int) -> dict[str, int]:
    known = {"data": data, "forward": forward, "backward": backward, "exposed_comm": comm}
    return {phase: known.get(phase, 0) for phase in PHASES}


def gpu_sums(**sums: Any) -> dict[str, Any]:
    return {"index": 0, "samples": 60, "memory_peak_bytes": 2_000, "energy_j": None, **sums}


def rank_sums(rank: int, recorded: int, **sums: Any) -> dict[str, Any]:
    return {"rank": rank, "recorded": recorded, **sums}


# Two minutes. 10 steps of warm-up, then 100 steps of 10 ms and 50 of 20 ms: 2 s in all. Of those,
# 60 were recorded.
FIRST = {
    "kind": "minute",
    "from_step": 0,
    "to_step": 110,
    "steps": 100,
    "warmup_steps": 9,
    "step_us": 1_000_000,
    "recorded": 40,
    "phases_us": phases_us(100_000, 100_000, 160_000, 40_000),
    "samples": 3_200,
    "tokens": None,
    "latency": {str(latency_bucket(10_000)): 40},
    "step_us_max": 11_000,
    "ranks": [
        rank_sums(
            0,
            40,
            phases_us=phases_us(80_000, 100_000, 160_000, 60_000),
            host_us=400_000,
            wait_us=20_000,
            lag_us=40_000,
            lag_steps=20,
        ),
        rank_sums(1, 40, phases_us=phases_us(100_000, 100_000, 160_000, 40_000), host_us=400_000),
    ],
    "gpus": [
        gpu_sums(util_percent=3_000, sm_active=15.0, sm_active_samples=30, power_w=18_000.0),
        {"index": 1, "samples": 60, "util_percent": None, "power_w": None},
    ],
    "verdicts": [
        {"kind": "DATA", "rank": None, "phase": "data", "seconds": 20.0, "from_step": 10},
        {"kind": "COMM", "rank": None, "phase": None, "seconds": 25.0, "from_step": 60},
    ],
    "findings": [
        {"kind": "CONTENTION", "rank": 0, "seconds": 30.0, "from_step": 10},
        {"kind": "THROTTLED", "rank": 1, "seconds": 20.0, "from_step": 50},
    ],
    "scalars": {"loss": {"first": 2.5, "last": 1.0, "min": 0.9}},
}
SECOND = {
    "kind": "minute",
    "from_step": 110,
    "to_step": 160,
    "steps": 50,
    "warmup_steps": 0,
    "step_us": 1_000_000,
    "recorded": 20,
    "phases_us": phases_us(200_000, 50_000, 130_000, 20_000),
    "samples": 1_600,
    "tokens": None,
    "latency": {str(latency_bucket(20_000)): 19, str(latency_bucket(80_000)): 1},
    "step_us_max": 80_500,
    "ranks": [
        rank_sums(0, 20, phases_us=phases_us(200_000, 50_000, 130_000, 20_000), host_us=402_000),
    ],
    "gpus": [gpu_sums(util_percent=2_400, power_w=12_000.0, memory_peak_bytes=3_000)],
    "verdicts": [
        {
            "kind": "DATA",
            "rank": None,
            "phase": "data",
            "seconds": 15.0,
            "from_step": 110,
            "share": 0.5,
        }
    ],
    "findings": [
        {"kind": "THROTTLED", "rank": 0, "seconds": 1.0, "from_step": 111},
        {"kind": "THROTTLED", "rank": 1, "seconds": 15.5, "from_step": 50, "headline": "hot"},
    ],
    "scalars": {"loss": {"first": 1.1, "last": 0.8, "min": 0.7}},
}


def rank_file(paths: SessionPaths, rank: int) -> None:
    loader = {
        "kind": "facts",
        "subject": "loader",
        "loader": 0,
        "train": True,
        "workers": 4,
        "pin_memory": True,
        "worker_pids": [1, 2],
    }
    write(
        paths.ranks / f"{rank}-0-{rank + 10}.jsonl",
        "rank",
        {**loader, "loader": 1, "train": False, "workers": 1},
        loader,
        {"kind": "facts", "subject": "script", "synthetic_data": True},
        {"kind": "memory", "peak_bytes": 5},
        {"kind": "probe", "cost_share": 0.5, "dropped": 9, "disabled": None},
        {"kind": "memory", "peak_bytes": 1_000 + rank},
        {"kind": "probe", "cost_share": 0.001 * (rank + 1), "dropped": rank, "disabled": None},
        rank=rank,
        attempt=0,
        world_size=2,
        torch="2.11.0",
        python="3.12.3",
        cuda="13.0",
        nccl="2.28.3",
        device={"type": "cuda", "uuid": f"GPU-{rank}"},
    )


@pytest.fixture
def paths(tmp_path: Path) -> SessionPaths:
    made = session(
        tmp_path / "20260101-000000-made-0001",
        workload="resnet50-cifar10",
        argv=["train.py", "--api-key", "abc"],
        options={"batch": "16", "token": "abc"},
        device="cuda",
        started_at="2026-01-01T00:00:00Z",
        versions={"torchtop": "0.1.0", "torch": "0.0", "driver": "580.1"},
    )
    write(
        made.node("host-a").events,
        "supervisor",
        {"kind": "process", "mono_ns": 2**60},
        {"kind": "exit", "mono_ns": 2**60, "cause": "completed", "code": 0, "message": "done"},
        {"kind": "end", "mono_ns": 2**60 + 7 * S, "status": "done"},
    )
    events = made.node("host-a").events.read_text().splitlines()
    header = {**json.loads(events[0]), "mono_ns": 2**60 - 5 * S}
    made.node("host-a").events.write_text("\n".join([json.dumps(header), *events[1:]]) + "\n")
    write(
        made.node("host-a").devices,
        "sampler",
        {"kind": "tick", "gpus": {"energy_j": [None, 7]}},
        {"kind": "tick", "gpus": {"energy_j": [1_000.0, 9]}},
        {"kind": "tick", "gpus": {"energy_j": [1_750.5, 3]}},
        {"kind": "tick", "gpus": {}},
        gpus=[{"index": 0, "uuid": "GPU-0", "name": "H200"}, {"index": 1, "uuid": "GPU-1"}],
    )
    for rank in (1, 0):
        rank_file(made, rank)
    write(made.history, "analyst", FIRST, SECOND)
    return made


def test_what_was_run(paths: SessionPaths) -> None:
    summary = build_summary(paths)

    assert summary["id"] == "20260101-000000-made-0001"
    assert summary["workload"] == "resnet50-cifar10"
    assert summary["argv"] == ["train.py", "--api-key", "***"]
    assert summary["options"] == {"batch": "16", "token": "***"}
    assert summary["synthetic_data"] is True
    assert summary["status"] == "done"
    assert summary["wall_s"] == 12.0
    assert summary["exit"] == {
        "cause": "completed",
        "rank": None,
        "code": 0,
        "signal": None,
        "message": "done",
    }
    assert (summary["world_size"], summary["nodes"], summary["device"]) == (2, 1, "cuda")
    assert summary["versions"] == {
        "torchtop": "0.1.0",
        "python": "3.12.3",
        "torch": "2.11.0",  # the rank's own word, not the guess of before
        "cuda": "13.0",
        "nccl": "2.28.3",
        "driver": "580.1",
    }


def test_steps_and_throughput(paths: SessionPaths) -> None:
    summary = build_summary(paths)

    # 160 steps were taken; 150 were measured: the first is never seen, and 9 warmed up.
    assert summary["steps"] == 160
    assert summary["warmup_steps"] == 10
    assert summary["step_ms"]["mean"] == pytest.approx(2_000 / 150, abs=0.001)
    assert summary["throughput"] == {
        "samples_per_s": 2_400.0,  # 4800 in 2 s
        "tokens_per_s": None,
        "steps_per_s": 75.0,
    }


def test_percentiles_come_from_the_merged_histogram(paths: SessionPaths) -> None:
    step_ms = build_summary(paths)["step_ms"]

    # 40 steps of 10 ms, 19 of 20 ms, 1 of 80 ms: nearest ranks 30, 57 and 60 of 60. Buckets are
    # 1 % wide.
    assert step_ms["p50"] == pytest.approx(10, rel=0.006)
    assert step_ms["p95"] == pytest.approx(20, rel=0.006)
    assert step_ms["p99"] == pytest.approx(80, rel=0.006)
    assert step_ms["max"] == 80.5


def test_phases_are_means_over_the_recorded_steps(paths: SessionPaths) -> None:
    phases = build_summary(paths)["phases"]

    # 300, 150, 290 and 60 ms over 60 steps; 800 ms in all.
    assert phases["data"] == {"ms": 5.0, "share": 0.375}
    assert phases["forward"] == {"ms": 2.5, "share": 0.1875}
    assert phases["backward"] == {"ms": 4.833, "share": 0.3625}
    assert phases["exposed_comm"] == {"ms": 1.0, "share": 0.075}
    assert phases["optimizer"] == {"ms": 0.0, "share": 0.0}
    assert list(phases) == list(PHASES)


def test_ranks(paths: SessionPaths) -> None:
    zero, one = build_summary(paths)["ranks"]

    assert (zero["rank"], zero["gpu_uuid"], zero["memory_peak_bytes"]) == (0, "GPU-0", 1_000)
    assert zero["phases"]["data"] == {"ms": round(280 / 60, 3), "share": 0.35}
    assert zero["step_ms"] == round(800 / 60, 3)
    assert zero["host_step_ms"] == round(802 / 60, 3)
    assert zero["lag_ms"] == 2.0  # 40 ms over the 20 steps whose lag is known
    assert zero["wait_ms"] == round(20 / 60, 3)
    assert zero["loader"] == {"workers": 4, "pin_memory": True}

    assert (one["rank"], one["memory_peak_bytes"], one["step_ms"]) == (1, 1_001, 10.0)
    assert (one["lag_ms"], one["wait_ms"]) == (None, None)  # never told: not 0


def test_gpus(paths: SessionPaths) -> None:
    zero, one = build_summary(paths)["gpus"]

    assert zero == {
        "index": 0,
        "uuid": "GPU-0",
        "name": "H200",
        "util_mean": 45.0,  # 5400 over 120 readings
        "sm_active_mean": 0.5,  # 15 over the 30 readings that had it
        "memory_peak_bytes": 3_000,
        "power_mean_w": 250.0,
        "energy_j": 750.5,
    }
    assert one["util_mean"] is one["power_mean_w"] is one["sm_active_mean"] is None
    assert one["energy_j"] is None  # the counter went backwards


def test_gpus_of_minutes_without_a_step_are_not_averaged_in(paths: SessionPaths) -> None:
    # given a third minute, in which nothing trained
    idle = [gpu_sums(util_percent=0, power_w=4_000.0, memory_peak_bytes=9_000)]
    paths.history.unlink()
    write(paths.history, "analyst", FIRST, SECOND, {**SECOND, "steps": 0, "gpus": idle})

    zero = build_summary(paths)["gpus"][0]

    assert (zero["util_mean"], zero["power_mean_w"]) == (45.0, 250.0)
    assert zero["memory_peak_bytes"] == 9_000


def test_the_verdict_is_the_one_that_held_longest(paths: SessionPaths) -> None:
    summary = build_summary(paths)

    assert [(v["kind"], v["seconds"]) for v in summary["verdicts"]] == [
        ("DATA", 35.0),
        ("COMM", 25.0),
    ]
    assert summary["verdict"]["kind"] == "DATA"
    assert summary["verdict"]["from_step"] == 10
    assert summary["verdict"]["share"] == 0.5


def test_findings_of_all_minutes_are_merged_the_longest_first(paths: SessionPaths) -> None:
    findings = build_summary(paths)["findings"]

    assert [(f["kind"], f["rank"], f["seconds"]) for f in findings] == [
        ("THROTTLED", 1, 35.5),
        ("CONTENTION", 0, 30.0),
        ("THROTTLED", 0, 1.0),
    ]
    assert (findings[0]["from_step"], findings[0]["headline"]) == (50, "hot")


def test_probe_and_loss(paths: SessionPaths) -> None:
    summary = build_summary(paths)

    assert summary["probe"] == {"cost_share": 0.002, "dropped": 1, "disabled": None}
    assert summary["loss"] == {"first": 2.5, "last": 0.8, "min": 0.7, "name": "loss"}


def test_a_loss_that_is_only_seen_stands_in_for_one_that_is_told(paths: SessionPaths) -> None:
    def loss(**scalars: float) -> Any:
        named = {"seen": "loss (backward)", "told": "train_loss", "other": "accuracy"}
        values = {named[k]: dict.fromkeys(("first", "last", "min"), v) for k, v in scalars.items()}
        minute = {**FIRST, "scalars": values}
        paths.history.unlink()
        write(paths.history, "analyst", minute)
        return build_summary(paths)["loss"]

    assert loss(other=0.9) is None
    assert loss(seen=2.0, other=0.9)["name"] == "loss (backward)"
    assert loss(seen=2.0, told=1.0)["last"] == 1.0


def test_the_scripts_own_phases_are_means_of_the_measured_steps(paths: SessionPaths) -> None:
    assert build_summary(paths)["own_phases"] == {}
    paths.history.unlink()
    own = {"own_us": {"augment": 60_000}, "own_steps": 20}
    write(paths.history, "analyst", {**FIRST, **own}, {**FIRST, **own})
    summary = build_summary(paths)

    assert summary["own_phases"]["augment"]["ms"] == 3.0
    share = 3.0 / summary["step_ms"]["mean"]
    assert summary["own_phases"]["augment"]["share"] == pytest.approx(share, abs=1e-4)
    assert "augment (of the script" in render_markdown(summary).replace("\\", "")


def test_time_of_which_nothing_is_known_is_a_phase_where_there_is_any(paths: SessionPaths) -> None:
    assert "unknown" not in build_summary(paths)["phases"]
    phases = {**FIRST["phases_us"], "unknown": sum(FIRST["phases_us"].values())}
    paths.history.unlink()
    write(paths.history, "analyst", {**FIRST, "phases_us": phases})
    summary = build_summary(paths)

    assert summary["phases"]["unknown"]["share"] == 0.5
    assert "| unknown |" in render_markdown(summary)


def test_why_a_probe_took_itself_out_is_told_from_either_file(paths: SessionPaths) -> None:
    write(
        paths.ranks / "1-0-11.process.jsonl",
        "process",
        {"kind": "probe", "disabled": "OSError: disk"},
        rank=1,
        attempt=0,
    )

    assert build_summary(paths)["probe"]["disabled"] == "OSError: disk"


def test_the_last_attempt_counts_whatever_the_times_of_the_files(paths: SessionPaths) -> None:
    write(
        paths.ranks / "0-1-9.jsonl", "rank", {"kind": "memory", "peak_bytes": 77}, rank=0, attempt=1
    )
    first = paths.ranks / "0-0-10.jsonl"
    first.touch()  # as a copied directory has it

    zero = build_summary(paths)["ranks"][0]

    assert zero["memory_peak_bytes"] == 77
    assert zero["loader"] is None


def test_the_last_launch_of_a_command_is_what_a_session_is_of(paths: SessionPaths) -> None:
    # given a launch of two ranks, of which the first minute is, and then one of a single rank
    history = paths.history.read_text().splitlines()
    again = {**SECOND, "first_attempt": 1, "own_us": {}, "own_steps": None}
    first = {**FIRST, "own_us": {"augment": 1.0}, "own_steps": 40}
    paths.history.unlink()
    write(paths.history, "analyst", *[{"mono_ns": S, **minute} for minute in (first, again)])
    assert len(history) == 3
    header = {"rank": 0, "world_size": 1, "attempt": 1, "first_attempt": 1}
    totals = {"kind": "totals", "to_step": 60}
    write(paths.ranks / "0-1-9.jsonl", "rank", totals, **header)

    summary = build_summary(paths)

    # then all figures are those of the second
    assert [rank["rank"] for rank in summary["ranks"]] == [0]
    assert summary["world_size"] == 1
    assert (summary["step_ms"]["mean"], summary["recorded_steps"]) == (20.0, 20)
    assert summary["throughput"]["samples_per_s"] == 1_600
    assert summary["own_phases"] == {}
    assert summary["ranks"][0]["phases"]["data"]["ms"] == 10.0
    assert [verdict["kind"] for verdict in summary["verdicts"]] == ["DATA"]
    assert summary["loss"]["first"] == 1.1


def test_a_launch_that_has_no_minute_yet_has_no_figures(paths: SessionPaths) -> None:
    header = {"rank": 0, "world_size": 1, "attempt": 1, "first_attempt": 1}
    write(paths.ranks / "0-1-9.jsonl", "rank", {"kind": "totals", "to_step": 3}, **header)

    summary = build_summary(paths)

    assert (summary["steps"], summary["step_ms"]["mean"]) == (3, None)


def test_facts_and_the_last_totals_of_a_long_file_are_both_read(paths: SessionPaths) -> None:
    beats = [{"kind": "beat", "text": "x" * 1000}] * 2500
    write(
        paths.ranks / "0-1-9.jsonl",
        "rank",
        {"kind": "facts", "subject": "loader", "loader": 0, "workers": 8},
        *beats,
        {"kind": "memory", "peak_bytes": 77},
        rank=0,
        attempt=1,
    )

    zero = build_summary(paths)["ranks"][0]

    assert (zero["loader"], zero["memory_peak_bytes"]) == ({"workers": 8}, 77)


def test_clocks_of_different_nodes_are_not_subtracted(paths: SessionPaths) -> None:
    write(
        paths.node("host-b").events,
        "supervisor",
        {"kind": "end", "mono_ns": 3 * S, "status": "done"},
    )
    text = paths.node("host-b").events.read_text().splitlines()
    header = {**json.loads(text[0]), "mono_ns": 1 * S}
    paths.node("host-b").events.write_text(json.dumps(header) + "\n" + text[1] + "\n")

    summary = build_summary(paths)

    assert (summary["wall_s"], summary["nodes"]) == (12.0, 2)


def test_a_lost_run_lasted_until_it_was_last_seen(tmp_path: Path) -> None:
    # given a supervisor that was killed at some time after its first second
    paths = session(tmp_path / "s", wall_s=0)
    node = paths.node("host-a")
    write(node.events, "supervisor", {"kind": "process", "mono_ns": 2**62 + S})
    text = node.events.read_text().splitlines()
    header = {**json.loads(text[0]), "mono_ns": 2**62}
    node.events.write_text(json.dumps(header) + "\n" + text[1] + "\n")
    # when the sampler went on for a minute
    write(node.devices, "sampler", {"kind": "tick", "mono_ns": 2**62 + 60 * S})

    assert build_summary(paths)["status"] == "lost"
    assert build_summary(paths)["wall_s"] == 60.0


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def test_what_is_missing_is_null_and_not_zero(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", wall_s=0)

    summary = build_summary(paths)

    told = ("id", "name", "schema", "status", "world_size", "nodes", "device", "synthetic_data")
    rest = {key: value for key, value in summary.items() if key not in told}
    assert [leaf for leaf in leaves(rest) if leaf is not None] == []
    assert summary["status"] == "lost"


def test_every_key_of_the_contract_is_there_whatever_is_missing(
    paths: SessionPaths, tmp_path: Path
) -> None:
    keys = {*SUMMARY_KEYS}

    assert keys <= build_summary(paths).keys()
    assert keys <= build_summary(session(tmp_path / "empty")).keys()
    assert keys <= build_summary(SessionPaths(tmp_path / "nowhere")).keys()


def test_it_can_be_written_and_rebuilt_from_the_rest(paths: SessionPaths) -> None:
    written = write_summary(paths)
    assert json.loads(paths.summary.read_text()) == json.loads(json.dumps(written))
    text = paths.summary_text.read_text()
    assert text.startswith("# made\n")

    paths.summary.unlink()
    paths.summary_text.unlink()

    assert write_summary(paths) == written
    assert paths.summary_text.read_text() == text


def test_torn_and_spoilt_lines_do_not_keep_it_from_being_built(paths: SessionPaths) -> None:
    expected = build_summary(paths)
    for file in paths.root.rglob("*.jsonl"):
        with file.open("ab") as out:
            out.write(b'\x00\x00\n{"kind":"beat"}\n["x"]\n{"kind":"to')

    assert build_summary(paths) == expected


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        ("completed", "done"),
        ("duration", "done"),
        ("steps", "done"),
        ("stopped", "stopped"),
        ("exception", "failed"),
        ("out_of_memory", "failed"),
        (None, "failed"),
    ],
)
def test_a_cause_makes_a_status(cause: str | None, status: str) -> None:
    assert status_of(cause) == status


def test_steps_that_no_minute_holds_are_counted(paths: SessionPaths) -> None:
    # Given ranks whose last totals go on after the last recorded step, one less far than the other
    for file, to_step in zip(sorted(paths.ranks.glob("?-0-*.jsonl")), (166, 164), strict=False):
        with file.open("a") as out:
            out.write(
                json.dumps(
                    {"kind": "totals", "seq": 999, "mono_ns": 1, "from_step": 160}
                    | {"to_step": to_step, "steps": 4, "host_us": 1}
                )
                + "\n"
            )

    summary = build_summary(paths)

    assert (summary["steps"], summary["warmup_steps"], summary["recorded_steps"]) == (164, 10, 60)


def test_that_a_run_hung_is_told_beside_what_held_longer(paths: SessionPaths) -> None:
    well = {"kind": "DATA", "rank": None, "phase": "data", "seconds": 50.0}
    hung = {"kind": "HUNG", "rank": None, "phase": None, "seconds": 20.0}
    paths.history.unlink()
    write(paths.history, "analyst", FIRST | {"verdicts": [hung, well], "findings": []})

    summary = build_summary(paths)

    assert summary["verdict"]["kind"] == "DATA"
    assert [finding["kind"] for finding in summary["findings"]] == ["HUNG"]


NEEDS = "a verdict needs 20 steps and 5 s after warm-up: the first 10 steps are left out"


@pytest.mark.parametrize(
    ("running", "headline"),
    [
        (False, "Too short for a verdict: it ended before enough steps were measured"),
        (True, "Too early for a verdict: not enough steps have been measured yet"),
    ],
)
def test_no_verdict_yet_is_told_with_what_it_needs(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch, running: bool, headline: str
) -> None:
    # given a run that was still being measured
    told = {"headline": "Measuring: 3 s more until the first verdict", "evidence": [NEEDS]}
    verdict = {"kind": "UNDECIDED", "rank": None, "phase": None, "seconds": 0.0, **told}
    paths.history.unlink()
    write(paths.history, "analyst", FIRST | {"verdicts": [verdict]})
    if running:
        paths.node("host-a").events.unlink()
        write(paths.node("host-a").events, "supervisor")
        monkeypatch.setattr("torchtop.session.summary.liveness", lambda _: "running")

    summary = build_summary(paths)

    assert (summary["status"] == "running") is running
    assert (summary["verdict"]["headline"], summary["verdict"]["evidence"]) == (headline, [NEEDS])


def test_how_far_a_run_has_come_is_that_of_its_last_analysis(tmp_path: Path) -> None:
    told = {"total_steps": 900, "eta_s": 61.5, "epoch": 2, "epoch_batch": 30, "epoch_batches": 391}
    analyses = [
        {"kind": "analysis", "step": step, "progress": {**told, "epoch_batch": batch}}
        for step, batch in ((100, 30), (110, 40))
    ]
    over, going = session(tmp_path / "over"), session(tmp_path / "going")
    for made in (over, going):
        write(made.analysis, "analyst", *analyses)

    ended, live = build_summary(over)["progress"], progress(going, "running")

    assert (live["total_steps"], live["eta_s"]) == (900, 61.5)
    assert (live["epoch"], live["epoch_batch"], live["epoch_batches"]) == (2, 40, 391)
    assert ended == {**live, "eta_s": None}
    shown = render_markdown({**build_summary(over), "progress": live})
    assert "| time left | 61.5 s |" in shown
    assert "| epoch | 3, batch 40 of 391 |" in shown
