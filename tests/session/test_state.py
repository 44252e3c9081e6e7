"""Records folded into snapshots."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from torchtop.session.state import SERIES_SECONDS, SessionState

S = 1_000_000_000
META = {"id": "s", "name": "s"}
PROBE, PROCESS = "ranks/0-0-11.jsonl", "ranks/0-0-11.process.jsonl"
EVENTS, DEVICES = "nodes/host-a/events.jsonl", "nodes/host-a/devices.jsonl"
Records = list[tuple[str, dict[str, Any]]]


def record(kind: str, at_s: float = 0, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "mono_ns": int(at_s * S), **fields}


def rank_header(rank: int = 0, attempt: int = 0, **fields: Any) -> dict[str, Any]:
    device = {"type": "cuda", "uuid": f"GPU-{rank}"}
    told = {"rank": rank, "attempt": attempt, "wall_s": 100.0, "host": "host-a", "device": device}
    return record("header", 1, **{**told, **fields})


FILES: dict[str, list[dict[str, Any]]] = {
    EVENTS: [
        record("header", 0.5, session="s"),
        record("process", 0.6, role="agent", process_pid=7),
        record("exit", 60, cause="completed", message="done"),
        record("end", 61, status="done"),
    ],
    DEVICES: [
        record(
            "header",
            0.7,
            gpus=[{"index": 0, "uuid": "GPU-0"}, {"index": 3, "uuid": "GPU-9"}],
            nvml_error=None,
        ),
        record("tick", 50, gpus={"util_percent": [40, None], "power_w": [100.5]}, host={}),
        record("tick", 51, gpus={"util_percent": [60, 0]}, host={"cpu_percent": 12.5}),
        record(
            "processes",
            52,
            gpus=[[{"process_pid": 11}], []],
            ranks=[{"rank": 0, "process_pid": 11, "cpu_percent": 99.0, "workers": []}],
        ),
    ],
    PROCESS: [rank_header(), record("torch", 2), record("exit", 59, code=0)],
    PROBE: [
        rank_header(),
        record("facts", 3, subject="loader", loader=1, workers=2),
        record("facts", 3, subject="loader", loader=0, workers=4),
        record("facts", 3, subject="ddp", parameters=10, buckets=None),
        record("facts", 4, subject="ddp", buckets=[1, 2]),
        record("facts", 4, subject="script", synthetic_data=True),
        record("memory", 5, peak_bytes=7),
        record("beat", 55, marker="BC", marker_ns=54 * S, step=9, ready=3),
    ],
    "analysis.jsonl": [
        record(
            "analysis",
            58,
            step=9,
            steps=9,
            step_ms={"mean": 20.0},
            throughput={"samples_per_s": 100.0, "tokens_per_s": None},
            phases={"data": {"ms": 5, "share": 0.25}},
            recent_step_ms=[19.0, 21.0],
            verdict={"kind": "DATA", "severity": "warn"},
            scalars={"loss": 0.5},
        )
    ],
    "history.jsonl": [record("minute", 60, steps=9)],
}


def folded(records: Records, meta: dict[str, Any] | None = None) -> SessionState:
    state = SessionState(META if meta is None else meta)
    for source, one in records:
        state.apply(source, one)
    return state


def in_order(files: dict[str, list[dict[str, Any]]]) -> Records:
    return [(source, one) for source, records in files.items() for one in records]


def test_a_whole_session_is_in_the_snapshot() -> None:
    snapshot = folded(in_order(FILES)).snapshot()

    assert snapshot.status == "done"
    assert snapshot.elapsed_s == pytest.approx(60.5)
    assert snapshot.now_ns == 61 * S
    assert snapshot.analysis_age_s == pytest.approx(3)
    assert snapshot.recent_step_ms == (19.0, 21.0)
    assert snapshot.verdict == {"kind": "DATA", "severity": "warn"}
    assert snapshot.verdict_changes == ((58 * S, "DATA", "warn"),)
    assert snapshot.scalar_series == {"loss": (0.5,)}
    assert [m["steps"] for m in snapshot.minutes] == [9]
    assert snapshot.exit is not None
    assert snapshot.exit["cause"] == "completed"
    (point,) = snapshot.points
    assert (point.step_ms, point.data_share, point.comm_share) == (20.0, 0.25, None)

    (rank,) = snapshot.ranks
    assert [loader["workers"] for loader in rank.loaders] == [4, 2]
    assert (rank.ddp["parameters"], rank.ddp["buckets"]) == (10, [1, 2])
    assert rank.script["synthetic_data"] is True
    assert (rank.marker, rank.marker_age_s, rank.ready) == ("BC", 7.0, 3)
    assert rank.process["cpu_percent"] == 99.0
    assert rank.exit_code == 0

    gpu, other = snapshot.gpus
    assert gpu.now == {"util_percent": 60}
    assert gpu.series["util_percent"] == (40, 60)
    assert gpu.series["power_w"] == (100.5, None)
    assert other.series["util_percent"] == (None, 0)
    assert (gpu.index, other.index) == (0, 3)
    assert (gpu.ranks, other.ranks) == ((0,), ())
    assert (len(gpu.processes), len(other.processes)) == (1, 0)
    assert snapshot.hosts[0].cpu_series == (None, 12.5)


@pytest.mark.parametrize("order", list(itertools.permutations(FILES))[::97])
def test_files_may_be_read_in_any_order(order: tuple[str, ...]) -> None:
    expected = folded(in_order(FILES)).snapshot()

    assert folded(in_order({source: FILES[source] for source in order})).snapshot() == expected


def second_attempt() -> dict[str, list[dict[str, Any]]]:
    return {
        "ranks/0-0-11.jsonl": [
            rank_header(),
            record("facts", 3, subject="loader", loader=0, workers=4),
            record("facts", 3, subject="loader", loader=1, workers=4),
            record("facts", 3, subject="ddp", parameters=10),
            record("beat", 9, marker="BC", marker_ns=9 * S, step=9, ready=3),
        ],
        "ranks/0-0-11.process.jsonl": [
            rank_header(),
            record("exception", 9, type="ValueError"),
            record("exit", 9, code=1),
        ],
        "ranks/0-1-22.jsonl": [
            rank_header(attempt=1, wall_s=200.0),
            record("facts", 13, subject="loader", loader=0, workers=8),
        ],
        "ranks/0-1-22.process.jsonl": [rank_header(attempt=1, wall_s=200.0)],
    }


@pytest.mark.parametrize("order", list(itertools.permutations(second_attempt())))
def test_the_last_attempt_of_a_rank_counts_whichever_is_read_first(order: tuple[str, ...]) -> None:
    files = second_attempt()

    (rank,) = folded(in_order({source: files[source] for source in order})).snapshot().ranks

    assert rank.header["attempt"] == 1
    assert [loader["workers"] for loader in rank.loaders] == [8]
    assert rank.ddp == {}
    assert rank.marker is None
    assert (rank.exit_code, rank.exception) == (None, None)


def next_launch() -> dict[str, list[dict[str, Any]]]:
    """Of rank 0 alone, which has not trained yet, after one of two ranks."""
    before = second_attempt()
    for source in ("ranks/0-0-11.process.jsonl", "ranks/0-1-22.process.jsonl"):
        before[source][0]["launch"] = "j"
    return {
        **before,
        "ranks/1-0-12.jsonl": [rank_header(1, pid=12)],
        "ranks/1-0-12.process.jsonl": [rank_header(1, pid=12), record("exit", 20, code=None)],
        "ranks/0-0-33.process.jsonl": [rank_header(wall_s=300.0, pid=33, launch="k")],
    }


def test_ranks_of_a_launch_that_is_over_say_so() -> None:
    ranks = folded(in_order(next_launch())).snapshot().ranks

    assert [(rank.rank, rank.over) for rank in ranks] == [(0, True), (1, True)]


def test_ranks_of_another_launch_are_not_those_of_the_last() -> None:
    # when the next launch trains
    header = rank_header(attempt=2, first_attempt=2, wall_s=301.0, world_size=1, pid=33)
    files = {**next_launch(), "ranks/0-2-33.jsonl": [header]}
    minutes = [record("minute", 20, steps=5), record("minute", 80, steps=3, first_attempt=2)]
    state = folded(in_order(files))
    for minute in minutes[:1]:
        state.apply("history.jsonl", minute)
    assert state.snapshot().minutes == ()
    for minute in minutes[1:]:
        state.apply("history.jsonl", minute)

    # then it is all that there is
    (rank,) = state.snapshot().ranks
    assert (rank.header["attempt"], rank.loaders, rank.over) == (2, (), False)
    assert [minute["steps"] for minute in state.snapshot().minutes] == [3]


def test_a_rank_is_known_from_rank_py_before_it_trains() -> None:
    state = folded([(PROCESS, rank_header(3)), (PROCESS, record("exception", 2, type="KeyError"))])

    (rank,) = state.snapshot().ranks

    assert (rank.rank, rank.host) == (3, "host-a")
    assert rank.exception is not None
    assert rank.exception["type"] == "KeyError"
    assert (rank.marker, rank.marker_age_s, rank.ready, rank.exit_code) == (None, None, None, None)


def test_the_status_goes_from_starting_to_the_end() -> None:
    state = folded([(EVENTS, record("header", 0))])
    assert state.snapshot().status == "starting"

    state.apply("analysis.jsonl", record("analysis", 1, steps=0))
    assert state.snapshot().status == "starting"
    state.apply("analysis.jsonl", record("analysis", 2, steps=5))
    assert state.snapshot().status == "running"
    assert state.snapshot(lost=True).status == "lost"
    state.apply(EVENTS, record("stop", 3, mode="stop"))
    assert state.snapshot().status == "stopping"
    assert state.snapshot().live
    state.apply(EVENTS, record("end", 4, status="stopped"))
    assert state.snapshot(lost=True).status == "stopped"
    assert not state.snapshot().live


def test_a_machine_without_a_session_is_idle() -> None:
    assert folded([(DEVICES, FILES[DEVICES][0])], meta={}).snapshot().status == "idle"


def test_time_goes_on_for_a_live_session_and_stops_at_its_end() -> None:
    state = folded([(EVENTS, record("header", 10))])
    assert state.snapshot(now_ns=25 * S).elapsed_s == 15

    state.apply(EVENTS, record("end", 20, status="done"))

    assert state.snapshot(now_ns=25 * S).elapsed_s == 10


def test_nothing_is_known_of_an_empty_session() -> None:
    snapshot = folded([]).snapshot()

    assert snapshot.elapsed_s == 0
    assert (snapshot.analysis, snapshot.analysis_age_s, snapshot.exit) == (None, None, None)
    assert (snapshot.gpus, snapshot.hosts, snapshot.ranks, snapshot.points) == ((), (), (), ())


def test_a_gpu_that_was_never_read_has_no_age_and_no_values() -> None:
    gpus = folded([(DEVICES, FILES[DEVICES][0])]).snapshot().gpus

    assert [gpu.age_s for gpu in gpus] == [float("inf")] * 2
    assert [dict(gpu.now) for gpu in gpus] == [{}, {}]


@pytest.mark.parametrize(
    ("source", "odd"),
    [
        ("analysis.jsonl", {"kind": "analysis"}),
        ("analysis.jsonl", record("analysis", phases=[1])),
        ("analysis.jsonl", record("analysis", throughput="fast")),
        (DEVICES, record("header", gpus=7)),
        (DEVICES, record("tick", host=["busy"])),
        (EVENTS, {"kind": "header"}),
        (PROBE, record("facts", subject="loader", loader=["x"])),
        (PROBE, rank_header(attempt="late")),
    ],
)
def test_a_record_of_the_wrong_shape_is_counted_and_passed_over(
    source: str, odd: dict[str, Any]
) -> None:
    state = folded(in_order(FILES))
    before = state.snapshot()

    state.apply(source, odd)

    after = state.snapshot()
    assert after.bad_lines == 1
    assert after.elapsed_s == before.elapsed_s
    assert (after.ranks, after.gpus) == (before.ranks, before.gpus)
    assert (after.analysis, after.points) == (before.analysis, before.points)


def test_the_series_keep_a_quarter_of_an_hour() -> None:
    state = folded([(DEVICES, FILES[DEVICES][0])])
    for second in range(SERIES_SECONDS + 100):
        state.apply("analysis.jsonl", record("analysis", second, steps=1, scalars={"loss": second}))
        state.apply(DEVICES, record("tick", second, gpus={"util_percent": [second, 1]}, host={}))

    snapshot = state.snapshot()

    assert len(snapshot.points) == SERIES_SECONDS
    assert snapshot.gpus[0].series["util_percent"][-1] == SERIES_SECONDS + 99
    assert len(snapshot.gpus[0].series["util_percent"]) == SERIES_SECONDS
    assert len(snapshot.scalar_series["loss"]) == SERIES_SECONDS


def test_a_scalar_that_comes_late_lines_up_with_the_points() -> None:
    state = folded([])
    state.apply("analysis.jsonl", record("analysis", 1))
    state.apply("analysis.jsonl", record("analysis", 2, scalars={"loss": 0.5}))
    state.apply("analysis.jsonl", record("analysis", 3, scalars={}))

    assert state.snapshot().scalar_series == {"loss": (None, 0.5, None)}


def test_a_run_that_is_over_is_shown_as_it_was_before_it_ended() -> None:
    # Given a machine that idles once training is stopped
    busy = [record("tick", s, gpus={"util_percent": [90, 80]}, host={}) for s in range(50, 58)]
    idle = [record("tick", s, gpus={"util_percent": [0, 0]}, host={}) for s in (59, 60)]
    header = FILES[DEVICES][0]
    stop = record("stop", 58.5, requested_by="viewer", mode="stop", why="user")
    ended = [record("exit", 60, cause="stopped"), record("end", 61, status="stopped")]
    state = SessionState(META)
    for told in (header, *busy, *idle):
        state.apply(DEVICES, told)
    for told in (record("header", 0.5), stop):
        state.apply(EVENTS, told)

    # Then while it stops the present counts, and afterwards the last of its own moments
    assert [gpu.now["util_percent"] for gpu in state.snapshot(60 * S).gpus] == [0, 0]
    for told in ended:
        state.apply(EVENTS, told)
    assert [gpu.now["util_percent"] for gpu in state.snapshot(62 * S).gpus] == [90, 80]


def test_the_launchs_step_limit_is_the_total_where_the_script_tells_none() -> None:
    told = record("analysis", 5, step=9, steps=10, step_ms={"mean": 500.0}, progress={"step": 9})
    own = record("analysis", 6, step=9, progress={"step": 9, "total_steps": 900, "eta_s": 1.0})
    state = SessionState({**META, "steps": 30})

    for given, total, eta in ((told, 30, 10.0), (own, 900, 1.0)):
        state.apply("analysis.jsonl", given)
        analysis = state.snapshot().analysis or {}
        assert analysis["progress"] == {"step": 9, "total_steps": total, "eta_s": eta}


def test_findings_come_and_go_as_events() -> None:
    state = SessionState({"schema": 1})
    hot = {"kind": "THROTTLED", "rank": 1, "severity": "warn"}
    for second, findings in enumerate(([], [hot], [hot], [{**hot, "severity": "critical"}], None)):
        state.apply(
            "analysis.jsonl", {"kind": "analysis", "mono_ns": second * S, "findings": findings}
        )
    state.apply("analysis.jsonl", {"kind": "analysis", "mono_ns": 9 * S, "findings": ["odd"]})

    told = "THROTTLED of rank 1"
    assert state.snapshot().finding_changes == (
        (1 * S, told, "warn"),
        (3 * S, told, "critical"),
        (4 * S, told, ""),
    )
    assert state.malformed == 1
