"""What the devices say: beside a verdict, or in its place where they explain it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnose.made import window
from torchtop.diagnose.facts import Facts, GpuFacts, HostFacts, RankFacts, Stranger
from torchtop.diagnose.hysteresis import Held
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.diagnose.verdict import Verdict
from torchtop.diagnose.verdicts import judge
from torchtop.diagnose.window import Window

LAG = {"lag_forward_us": 15_000, "lag_backward_us": 20_000, "lag_width_us": 20}
COMPUTE = {"forward": 20_000, "backward": 40_000, "exposed": 200} | LAG
SLOW = COMPUTE | {"backward": 70_000}
WAITS = COMPUTE | {"exposed": 30_200}
STALLED = COMPUTE | {"data": 30_000, "data_host_us": 31_000}
BUSY = {"util_percent": 99.0, "sm_clock_mhz": 1980.0, "sm_clock_max_mhz": 1980.0}
HOT = {"hw_thermal_slowdown": 1.0}
CAPPED = {"sw_power_cap": 1.0}
OTHER = (Stranger(4242, "python", 2_100_000_000),)


def facts(*gpus: dict[str, Any], **known: Any) -> Facts:
    ranks = tuple(
        RankFacts(
            number,
            "a",
            gpu_uuid=gpu.pop("uuid", f"GPU-{number}"),
            **{name: gpu.pop(name) for name in ("retries", "retries_s") if name in gpu},
            gpu=GpuFacts(**{"index": number, "name": "NVIDIA H200"} | BUSY | gpu),
        )
        for number, gpu in enumerate(map(dict, gpus))
    )
    return Facts(ranks, {"a": HostFacts(32, 10.0, len(gpus))}, **known)


def told(
    win: Window, known: Facts, held: Held | None = None, standing: Any = ()
) -> tuple[Verdict, tuple[Verdict, ...]]:
    judged = judge(win, known, held, DEFAULT, standing=standing)
    return judged.verdict, judged.findings


HEALTHY = window(COMPUTE, COMPUTE)
STRAGGLER = window(WAITS, SLOW)


# -------------------------------------------------------------------------------------- throttled
def test_a_gpu_at_its_power_limit_is_as_it_should_be() -> None:
    # dense bf16 work on an H200: 700 W and 73 % of the highest clock
    known = facts(*({"sm_clock_mhz": 1450.0, "throttle": CAPPED, "power_limit_w": 700.0},) * 2)

    verdict, beside = told(HEALTHY, known)

    assert (verdict.kind, verdict.severity, beside) == ("COMPUTE-BOUND", "ok", ())
    assert any("at its power limit of 700 W: 1450 of 1980 MHz" in e for e in verdict.evidence)


def test_a_power_limit_that_somebody_has_lowered_is_noted() -> None:
    verdict, beside = told(HEALTHY, facts(*({"sm_clock_mhz": 900.0, "throttle": CAPPED},) * 2))

    assert verdict.kind == "COMPUTE-BOUND"
    assert [(f.kind, f.severity, f.rank) for f in beside] == [
        ("THROTTLED", "note", 0),
        ("THROTTLED", "note", 1),
    ]
    assert "power limit" in beside[0].advice[0]


def test_a_gpu_that_is_too_hot_slows_everybody_down() -> None:
    known = facts({}, {"sm_clock_mhz": 1320.0, "throttle": HOT, "temperature_c": 92.0})

    verdict, beside = told(HEALTHY, known)

    assert (verdict.kind, verdict.rank, verdict.severity) == ("THROTTLED", 1, "critical")
    assert verdict.share == pytest.approx(1 / 3, abs=0.01)
    assert verdict.gain_bound == pytest.approx(1.5, abs=0.02)
    assert verdict.of == "COMPUTE-BOUND"
    assert "at 92 °C" in verdict.evidence[0]
    assert beside == ()


def test_a_hot_gpu_stands_beside_another_bottleneck() -> None:
    known = facts({}, {"sm_clock_mhz": 1320.0, "throttle": HOT})

    verdict, beside = told(window(STALLED, STALLED), known)

    assert verdict.kind == "DATA"
    assert [(f.kind, f.rank, f.share) for f in beside] == [("THROTTLED", 1, None)]


@pytest.mark.parametrize(
    "gpu",
    [
        {"throttle": HOT},  # held down, but not slow
        {"sm_clock_mhz": 1320.0},  # slow, but nothing holds it down: it was set so
        {"sm_clock_mhz": 345.0, "throttle": HOT, "util_percent": 2.0},  # idle
        {"sm_clock_mhz": 1320.0, "throttle": {"hw_thermal_slowdown": 0.3}},  # now and then
        {"sm_clock_mhz": None, "throttle": HOT},
    ],
)
def test_what_does_not_slow_a_busy_gpu_down_is_no_finding(gpu: dict[str, Any]) -> None:
    assert told(HEALTHY, facts({}, gpu))[1] == ()


def test_a_clock_that_does_not_explain_a_straggler_stands_beside_it() -> None:
    # given a rank that computes 50 % longer, on a clock that is 11 % lower
    known = facts({}, {"sm_clock_mhz": 1760.0, "throttle": HOT})

    verdict, beside = told(STRAGGLER, known)

    assert (verdict.kind, verdict.rank) == ("STRAGGLER", 1)
    assert [finding.kind for finding in beside] == ["THROTTLED"]


def test_the_fastest_ranks_clock_does_not_matter() -> None:
    known = facts({"sm_clock_mhz": 1320.0, "throttle": HOT}, {})

    verdict, _ = told(STRAGGLER, known)

    assert verdict.kind == "STRAGGLER"


def test_a_throttled_gpu_stays_so_until_it_is_clearly_not() -> None:
    known = facts({}, {"sm_clock_mhz": 1320.0, "throttle": {"hw_thermal_slowdown": 0.4}})
    held = Held("THROTTLED", 1, None, "critical", 0, 0, "COMPUTE-BOUND")

    assert told(HEALTHY, known)[0].kind == "COMPUTE-BOUND"
    assert told(HEALTHY, known, held)[0].kind == "THROTTLED"
    assert told(window(STALLED, STALLED), known, None, [("THROTTLED", 1)])[1] != ()


# ------------------------------------------------------------------------------------- contention
def test_a_stranger_that_slows_nothing_down_is_a_note() -> None:
    verdict, beside = told(HEALTHY, facts({}, {"strangers": OTHER}))

    assert verdict.kind == "COMPUTE-BOUND"
    assert [(f.kind, f.severity, f.rank, f.cause) for f in beside] == [
        ("CONTENTION", "note", 1, "processes")
    ]
    assert "python (pid 4242) with 2.1 GB" in beside[0].evidence[0]


def test_a_stranger_on_a_stragglers_gpu_is_why_it_is_slow() -> None:
    verdict, beside = told(STRAGGLER, facts({}, {"strangers": OTHER}))

    assert (verdict.kind, verdict.rank, verdict.phase) == ("CONTENTION", 1, "backward")
    assert verdict.severity == "critical"
    assert "costing 33 %: up to 1.5x faster" in verdict.headline
    assert beside == ()


def test_a_stranger_does_not_explain_a_late_host() -> None:
    late = COMPUTE | {"pre_optimizer": 30_000}

    verdict, beside = told(window(WAITS, late), facts({}, {"strangers": OTHER}))

    assert (verdict.kind, verdict.phase) == ("STRAGGLER", "pre_optimizer")
    assert [finding.kind for finding in beside] == ["CONTENTION"]


def test_ranks_that_share_a_gpu_are_told_so_once() -> None:
    _, beside = told(HEALTHY, facts({"uuid": "GPU-x"}, {"uuid": "GPU-x"}))

    assert [(f.kind, f.severity, f.cause) for f in beside] == [("CONTENTION", "warn", "ranks")]
    assert beside[0].headline == "Ranks 0 and 1 compute on the same GPU"


# ----------------------------------------------------------------------------------------- memory
STARVED = {"lag_forward_us": 300, "lag_backward_us": 500, "lag_width_us": 20}
ALLOCATES = COMPUTE | {"forward": 60_000}


def test_a_retry_now_and_then_stands_beside_a_healthy_run() -> None:
    verdict, beside = told(HEALTHY, facts({}, {"retries": 2, "retries_s": 60.0}))

    assert verdict.kind == "COMPUTE-BOUND"
    assert [(f.kind, f.severity, f.rank) for f in beside] == [("MEMORY PRESSURE", "warn", 1)]
    assert "retried 2 times" in beside[0].evidence[0]


def test_retries_in_every_step_are_why_forward_takes_long() -> None:
    # given forward that takes longer than backward, and ten retries a second
    known = facts(*({"retries": 600, "retries_s": 60.0},) * 2)

    verdict, _ = told(window(ALLOCATES, ALLOCATES), known)

    assert (verdict.kind, verdict.cause) == ("MEMORY PRESSURE", "retries")
    assert verdict.share == pytest.approx((60 - 0.55 * 40) / 100.2, abs=0.01)
    assert verdict.severity == "warn"


def test_retries_explain_a_host_that_is_hardly_ahead() -> None:
    win = window(COMPUTE | STARVED | {"forward": 22_000})
    known = facts({"retries": 600, "retries_s": 60.0})

    assert told(win, facts({}))[0].kind == "UNDECIDED"
    assert told(win, known)[0].kind == "MEMORY PRESSURE"


def test_memory_that_comes_and_goes_is_given_back_on_purpose() -> None:
    gigabyte = 10**9
    used = tuple(gigabyte * (40 - 15 * (second % 2)) for second in range(10))

    verdict, _ = told(window(ALLOCATES, ALLOCATES), facts({"memory_used_bytes": used}, {}))

    assert (verdict.kind, verdict.rank, verdict.cause) == ("MEMORY PRESSURE", 0, "empty_cache")
    assert "fell 5 times in 10 s, between 40 GB and 25 GB" in verdict.evidence[0]
    assert "empty_cache" in verdict.advice[0]


def test_memory_that_grows_or_is_a_strangers_is_no_finding() -> None:
    grows = {"memory_used_bytes": tuple(10**9 * second for second in range(1, 11))}
    shared = {"memory_used_bytes": (5, 1, 5, 1, 5, 1, 5, 1), "strangers": OTHER}

    assert told(HEALTHY, facts(grows, {}))[1] == ()
    assert [f.kind for f in told(HEALTHY, facts(shared, {}))[1]] == ["CONTENTION"]


def test_findings_come_with_the_most_severe_first() -> None:
    known = facts({"strangers": OTHER}, {"sm_clock_mhz": 1320.0, "throttle": HOT})

    _, beside = told(window(STALLED, STALLED), known)

    assert [finding.severity for finding in beside] == ["critical", "note"]


def test_no_sentence_has_an_unknown_in_it() -> None:
    bare = {"index": None, "sm_clock_mhz": 1320.0, "throttle": HOT}
    stranger = {"strangers": (Stranger(7, "unnamed", None),), "index": None}

    for win in (HEALTHY, STRAGGLER, window(STALLED, STALLED)):
        verdict, beside = told(win, facts(stranger, bare | {"retries": 1}))
        for finding in (verdict, *beside):
            for text in (finding.headline, *finding.evidence, *finding.advice):
                assert "None" not in text


def test_the_limits_are_the_users() -> None:
    strict = replace(DEFAULT, throttle_ticks=0.2)
    known = facts({}, {"sm_clock_mhz": 1320.0, "throttle": {"hw_thermal_slowdown": 0.3}})

    assert judge(HEALTHY, known, None, strict).verdict.kind == "THROTTLED"
