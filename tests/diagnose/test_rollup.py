"""The minute record: everything in it sums."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from diagnose.sim_records import START_NS, records, source_of
from diagnose.simulator import Job, Loader, Rank, simulate
from torchtop.diagnose.analyser import Analyser
from torchtop.session.records import PHASES, encode, latency_bucket

JOB = Job(ranks=(Rank(loader=Loader(batch_us=280_000)),) * 2, steps=200)


def minutes(stream: Iterable[tuple[str, dict[str, Any]]], every_s: float) -> list[dict[str, Any]]:
    """The minutes of a run whose minutes are shorter, with an analysis a second."""
    analyser = Analyser()
    made = []
    analysed = due = now = START_NS
    for source, record in stream:
        now = record["mono_ns"]
        while now >= analysed + 10**9:
            analysed += 10**9
            analyser.analyse(analysed)
        if now >= due + every_s * 1e9:
            due = now
            made.append(analyser.minute(now))
        analyser.feed(source, record)
    analyser.analyse(now)
    made.append(analyser.minute(now))
    return [minute for minute in made if minute]


@pytest.fixture(scope="module")
def run() -> Any:
    return simulate(JOB)


def test_a_minute_has_every_field_of_the_schema(run: Any) -> None:
    minute = minutes(records(run), 1000)[0]

    assert set(minute) == {
        "from_ns",
        "to_ns",
        "from_step",
        "to_step",
        "steps",
        "warmup_steps",
        "step_us",
        "recorded",
        "phases_us",
        "samples",
        "tokens",
        "latency",
        "step_us_max",
        "ranks",
        "gpus",
        "verdicts",
        "findings",
        "scalars",
        "first_attempt",
    }
    assert set(minute["phases_us"]) == set(PHASES)
    assert json.loads(encode({"kind": "minute"} | minute))


@pytest.mark.parametrize("every_s", [1, 3, 1000])
def test_minutes_sum_to_the_run(run: Any, every_s: float) -> None:
    made = minutes(records(run), every_s)

    assert sum(m["steps"] for m in made) == 190
    assert sum(m["warmup_steps"] for m in made) == 10
    assert sum(m["recorded"] for m in made) == 190
    assert sum(m["samples"] or 0 for m in made) == 190 * 128
    first, last = run.rows[0][9]["device_us"], run.rows[0][-1]["device_us"]
    assert sum(m["step_us"] for m in made) == pytest.approx(last - first, rel=1e-3)
    assert made[0]["from_ns"] == START_NS
    for before, after in pairwise(made):
        assert after["from_ns"] == before["to_ns"]
        if before["to_step"] is not None:
            assert after["from_step"] == before["to_step"]


def test_phases_sum_to_the_steps(run: Any) -> None:
    minute = minutes(records(run), 1000)[0]

    steps = sum(row["device_us"] for row in run.rows[0][-1:]) - run.rows[0][9]["device_us"]
    assert sum(minute["phases_us"].values()) == pytest.approx(steps, rel=0.001)
    for rank in minute["ranks"]:
        assert sum(rank["phases_us"].values()) == pytest.approx(steps, rel=0.001)
        assert rank["recorded"] == rank["lag_steps"] == 190


def test_unrecorded_steps_are_counted(run: Any) -> None:
    # given ranks that record one step in two and one in four
    made = minutes(records(run, strides=(2, 4)), 1000)[0]

    assert made["recorded"] < 0.4 * made["steps"]
    assert made["to_step"] - made["from_step"] == made["steps"]
    assert made["samples"] == made["steps"] * 128
    mean = made["step_us"] / made["steps"]
    assert mean == pytest.approx(run.step_us(10), rel=0.05)


def test_samples_are_those_that_the_ranks_have_counted(run: Any) -> None:
    # given batches that differ, of which the measured steps have but the small ones
    stream = []
    for source, record in records(run, strides=(4, 4)):
        small = {"samples": [1] * len(record["step"])} if record["kind"] == "steps" else {}
        stream.append((source, record | small))

    made = minutes(stream, 1000)[0]

    assert made["samples"] == made["steps"] * 128

    # and where a rank could not count its own, the measured ones stand for all
    for source, record in stream:
        if record["kind"] == "totals" and source == source_of(1):
            record["samples"] = None
    assert minutes(stream, 1000)[0]["samples"] == made["steps"] * 2


def test_the_histogram_holds_every_recorded_step(run: Any) -> None:
    minute = minutes(records(run), 1000)[0]

    expected = Counter(
        latency_bucket(sum(v for k, v in row.items() if k.removesuffix("_us") in PHASES))
        for row in run.rows[0][10:]
    )
    assert sum(minute["latency"].values()) == 190
    assert abs(max(map(int, minute["latency"])) - max(expected)) <= 1


def test_verdicts_say_how_long_they_stood(run: Any) -> None:
    made = minutes(records(run), 1000)[0]["verdicts"]

    stood = {verdict["kind"]: verdict for verdict in made}
    assert stood["DATA"]["seconds"] >= 5
    assert stood["UNDECIDED"]["seconds"] == 0, "warming up is no verdict"
    assert stood["DATA"]["share"] == pytest.approx(0.45, abs=0.03)
    assert {"severity", "gain_bound", "headline", "evidence", "advice"} < set(stood["DATA"])


def test_scalars_keep_first_last_and_least() -> None:
    analyser = Analyser()
    analyser.feed(source_of(0), {"kind": "header", "mono_ns": 1, "rank": 0, "world_size": 1})
    for step, loss in enumerate([3.0, 1.0, None, 2.0]):
        values = {"loss": loss}
        analyser.feed(
            source_of(0), {"kind": "scalars", "mono_ns": 2, "step": step, "values": values}
        )

    minute = analyser.minute(3)

    assert minute is not None
    assert minute["scalars"] == {"loss": {"first": 3.0, "last": 2.0, "min": 1.0}}
    assert analyser.minute(4) is None


def test_gpus_are_summed_and_what_is_missing_stays_missing() -> None:
    analyser = Analyser()
    source = "nodes/a/devices.jsonl"
    gpus = [{"index": 0, "uuid": "GPU-a"}, {"index": 1, "uuid": "GPU-b"}]
    analyser.feed(source, {"kind": "header", "mono_ns": 1, "host": "a", "gpus": gpus})
    for util, used, energy in ((50, 7, None), (70, 9, 1000.5), (None, 8, None)):
        columns = {
            "util_percent": [util, None],
            "memory_used_bytes": [used, None],
            "energy_j": [energy, None],
            "sm_active": [0.5, None],
        }
        analyser.feed(source, {"kind": "tick", "mono_ns": 2, "gpus": columns})

    minute = analyser.minute(3)

    assert minute is not None
    first, second = minute["gpus"]
    assert (first["index"], first["samples"], first["util_percent"]) == (0, 2, 120)
    assert (first["memory_peak_bytes"], first["energy_j"]) == (9, 1000.5)
    assert (first["sm_active"], first["sm_active_samples"], first["power_w"]) == (1.5, 3, None)
    assert (second["samples"], second["util_percent"], second["memory_peak_bytes"]) == (
        0,
        None,
        None,
    )


def test_gpus_that_idle_while_a_run_starts_are_not_counted_as_training(run: Any) -> None:
    # given GPUs that idle at 70 W for 30 s, and draw 700 W once there are steps
    analyser = Analyser()
    source = "nodes/a/devices.jsonl"

    def tick(power_w: float) -> dict[str, Any]:
        columns = {"util_percent": [power_w / 7], "power_w": [power_w], "memory_used_bytes": [7]}
        return {"kind": "tick", "mono_ns": 2, "gpus": columns}

    facts = [{"index": 0, "uuid": "GPU-a"}]
    analyser.feed(source, {"kind": "header", "mono_ns": 1, "host": "a", "gpus": facts})
    for _ in range(30):
        analyser.feed(source, tick(70))
    for name, record in records(run):
        analyser.feed(name, record)
    analyser.analyse(START_NS)
    for _ in range(10):
        analyser.feed(source, tick(700))

    # when the minute ends
    gpus = (analyser.minute(START_NS + 1) or {})["gpus"]
    (gpu,) = (gpu for gpu in gpus if gpu["host"] == "a")

    # then its means are those of the training, and its memory is the most of all
    assert (gpu["samples"], gpu["power_w"], gpu["util_percent"]) == (10, 7_000, 1_000)
    assert gpu["memory_peak_bytes"] == 7


def test_a_minute_ends_where_another_launch_begins(run: Any) -> None:
    # given a launch of two ranks with a phase of its own, and then one of another speed
    def again(first: int) -> Iterable[tuple[str, dict[str, Any]]]:
        later = simulate(Job(ranks=(Rank(),) * 2, steps=60))
        for source, record in records(later):
            rank = int(source.split("/")[1].split("-")[0])
            moved = record | {"mono_ns": record["mono_ns"] + 10**12}
            if record["kind"] == "header":
                moved |= {"attempt": 1, "first_attempt": first}
            yield source_of(rank, 1), moved

    def counted(first: int) -> tuple[list[int], list[int], int]:
        analyser = Analyser()
        for source, record in (*records(run), *again(first)):
            analyser.feed(source, record)
        ended, last = analyser.ended(), analyser.minute(2 * 10**12)
        assert analyser.ended() == []
        assert last is not None
        steps = [m["steps"] + m["warmup_steps"] for m in (*ended, last)]
        fresh = len(analyser.analyse(2 * 10**12)["recent_step_ms"])
        return [m["first_attempt"] for m in (*ended, last)], steps, fresh

    # then each has a minute, while what is only started anew goes on with the same
    launches, steps, fresh = counted(1)
    assert launches == [0, 1]
    assert 190 < steps[0] <= 200 and 50 < steps[1] <= 60 and fresh <= 60
    same, together, _ = counted(0)
    assert (same, together) == ([0], [sum(steps)])
