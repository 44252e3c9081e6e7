"""Evidence and advice: numbers that can be checked, and nothing that is not known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from diagnose.made import row, window
from torchtop.diagnose.facts import Facts, HostFacts, RankFacts
from torchtop.diagnose.frontier import account
from torchtop.diagnose.hysteresis import Held
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.diagnose.verdicts import Verdict, judge
from torchtop.diagnose.window import Window, summarise

LOADER = {
    "workers": 4,
    "prefetch_factor": 2,
    "pin_memory": True,
    "persistent_workers": True,
    "batches": 1000,
}
LAG = {"lag_forward_us": 15_000, "lag_backward_us": 20_000, "lag_width_us": 20}
STARVED = {"lag_forward_us": 20, "lag_backward_us": 30, "lag_width_us": 20}
STALL = {"data": 30_000, "forward": 20_000, "backward": 30_000, "data_host_us": 31_000} | LAG
COMPUTE = {"forward": 20_000, "backward": 30_000, "exposed": 200, "data_host_us": 90} | LAG


def rank(number: int, loader: dict[str, Any] | None = None, **known: Any) -> RankFacts:
    return RankFacts(number, "a", LOADER | (loader or {}), queue=8, **known)


def facts(*ranks: RankFacts, host: HostFacts | None = None, **known: Any) -> Facts:
    host = host or HostFacts(cores=32, cpu_percent=37.5, ranks=len(ranks), workers=4 * len(ranks))
    return Facts(ranks=ranks, hosts={"a": host}, **known)


def told(win: Window, known: Facts, held: Held | None = None) -> Verdict:
    return judge(win, known, held, DEFAULT)[0]


# ------------------------------------------------------------------------------------------ data
def test_a_data_stall_is_told_with_what_the_screen_shows() -> None:
    ranks = [rank(r, worker_percent=99.0, ready=0.2) for r in (0, 1)]

    verdict = told(window(STALL, STALL), facts(*ranks))

    assert verdict.kind == "DATA"
    assert verdict.headline == (
        "Waiting for data 38 % of each step: up to 1.6x faster with a perfect loader"
    )
    assert verdict.evidence == (
        "the GPU waits for a batch 30.0 ms of a 80.0 ms step; by rank 30.0 ms to 30.0 ms",
        "ready batches in the loader queue of rank 0: 0.2 of 8 on average",
        "loader workers at 99 % of a core each (4 workers), 20 of 32 cores idle",
    )
    assert verdict.advice == ("num_workers=7 instead of 4: 20 of 32 cores are idle",)


def advice_for(host: HostFacts, **loader: Any) -> str:
    ranks = [rank(r, loader) for r in (0, 1)]
    return "\n".join(told(window(STALL, STALL), facts(*ranks, host=host)).advice)


@pytest.mark.parametrize(
    "host",
    [
        HostFacts(cores=8, cpu_percent=60, ranks=2, workers=8),  # as many workers as cores
        HostFacts(cores=4, cpu_percent=50, ranks=2, workers=8),  # more of them
        HostFacts(cores=32, cpu_percent=90, ranks=2, workers=8),  # all cores busy
        HostFacts(cores=10, cpu_percent=84, ranks=2, workers=8),  # one core idle, for two ranks
        HostFacts(cores=32, cpu_percent=None, ranks=2, workers=8),  # nobody knows
        HostFacts(),
    ],
)
def test_more_workers_are_not_advised_where_there_are_no_cores_for_them(host: HostFacts) -> None:
    advice = advice_for(host)

    assert "num_workers" not in advice
    assert "make each batch cheaper" in advice


def test_workers_are_advised_as_far_as_idle_cores_go() -> None:
    few = HostFacts(cores=16, cpu_percent=75, ranks=2, workers=8)

    assert "num_workers=6 instead of 4: 4 of 16 cores are idle" in advice_for(few)


def test_a_loader_in_the_training_process_gets_workers() -> None:
    host = HostFacts(cores=32, cpu_percent=10, ranks=2, workers=0)

    assert "num_workers=4: batches are then made beside" in advice_for(host, workers=0)


def test_workers_that_wait_point_to_the_storage() -> None:
    ranks = [rank(r, worker_percent=12.0) for r in (0, 1)]

    verdict = told(window(STALL, STALL), facts(*ranks))

    assert "look at the storage too" in verdict.advice[0]


@pytest.mark.parametrize(
    ("setting", "value", "told_of"),
    [
        ("pin_memory", False, True),
        ("pin_memory", True, False),
        ("pin_memory", None, False),
    ],
)
def test_pinned_memory_is_advised_only_where_it_is_off(
    setting: str, value: Any, told_of: bool
) -> None:
    host = HostFacts(cores=32, cpu_percent=10, ranks=2, workers=8)

    assert ("pin_memory=True" in advice_for(host, **{setting: value})) is told_of


def test_workers_that_start_anew_are_told_where_epochs_are_short() -> None:
    host = HostFacts(cores=32, cpu_percent=10, ranks=2, workers=8)

    assert "persistent_workers" in advice_for(host, persistent_workers=False, batches=50)
    assert "persistent_workers" not in advice_for(host, persistent_workers=False, batches=5000)
    assert "persistent_workers" not in advice_for(host, persistent_workers=True, batches=50)


def test_a_stall_with_a_full_queue_is_contradictory() -> None:
    verdict = told(window(STALL, STALL), facts(rank(0, ready=7.8), rank(1, ready=7.9)))

    assert (verdict.kind, verdict.severity) == ("UNDECIDED", "unknown")
    assert any("7.8 of 8" in sentence for sentence in verdict.evidence)


def test_a_stall_in_which_the_host_did_not_wait_is_contradictory() -> None:
    quick = STALL | {"data_host_us": 200}

    verdict = told(window(quick, quick), facts(rank(0), rank(1)))

    assert verdict.kind == "UNDECIDED"
    assert any("0.20 ms a step in next()" in sentence for sentence in verdict.evidence)


# ------------------------------------------------------------------------------- communication
COMM = COMPUTE | {"exposed": 20_000}


def test_what_ddp_does_already_is_not_advised() -> None:
    on = {
        "gradient_as_bucket_view": True,
        "find_unused_parameters": False,
        "parameters": 10,
        "gradient_bytes": 20,
    }
    off = {
        "gradient_as_bucket_view": False,
        "find_unused_parameters": True,
        "parameters": 10,
        "gradient_bytes": 40,
    }

    quiet = " ".join(told(window(COMM, COMM), facts(rank(0), rank(1), ddp=on)).advice)
    full = told(window(COMM, COMM), facts(rank(0), rank(1), ddp=off))

    assert full.kind == "COMM"
    assert "bf16" not in quiet
    assert "bucket_view" not in quiet
    assert "bf16" in " ".join(full.advice)
    assert "bucket_view" in " ".join(full.advice)
    assert "29 % of each step" in full.headline


# ---------------------------------------------------------------------------------- stragglers
def test_a_straggler_is_set_beside_another_rank() -> None:
    late = COMPUTE | {"pre_optimizer": 31_200}
    waits = COMPUTE | {"pre_optimizer": 300, "exposed": 31_100}

    verdict = told(window(waits, late), facts(rank(0), rank(1)))

    assert (verdict.kind, verdict.rank, verdict.phase) == ("STRAGGLER", 1, "pre_optimizer")
    assert verdict.evidence[:2] == (
        "rank 1 spends 31.2 ms between backward and the optimizer, rank 0 0.30 ms",
        "rank 0 waits 30.9 ms of each step for it",
    )


def test_a_straggler_whose_gpu_is_throttled_or_shared_is_told_so() -> None:
    slow, fast = COMPUTE | {"backward": 60_000}, COMPUTE | {"exposed": 30_200}
    throttled = rank(1, sm_clock_mhz=1200, throttle=("sw_power_cap",))

    hot = told(window(fast, slow), facts(rank(0, sm_clock_mhz=1980), throttled))
    shared = told(window(fast, slow), facts(rank(0), rank(1, strangers=2)))

    assert any("1200 MHz, another at 1980 (sw_power_cap)" in text for text in hot.evidence)
    assert any("sw_power_cap" in text for text in hot.advice)
    assert any("also runs 2 other process" in text for text in shared.evidence)
    assert "off the GPU of rank 1" in shared.advice[0]


def take_turns(extra: int) -> Window:
    """Four ranks, each in turn slower in forward."""
    made = []
    for step in range(20, 60):
        slow = [extra if step % 4 == number else 0 for number in range(4)]
        ranks = [COMPUTE | {"forward": 20_000 + us, "exposed": 200 + extra - us} for us in slow]
        made.append(account([row(step, at_ns=step * 500_000_000, **values) for values in ranks]))
    return summarise(made, True, DEFAULT)


def test_ranks_that_take_turns_are_jitter_below_ten_percent() -> None:
    known = facts(*(rank(number) for number in range(4)))

    little, much = told(take_turns(5_000), known), told(take_turns(12_000), known)

    assert little.kind == "COMPUTE-BOUND"
    assert (much.kind, much.rank, much.phase) == ("STRAGGLER", None, "forward")
    assert "balance the work" in much.advice[0]


def test_ranks_that_take_turns_on_a_busy_host_need_cores() -> None:
    busy = HostFacts(cores=2, cpu_percent=99, ranks=4, workers=0)

    verdict = told(take_turns(12_000), facts(*(rank(number) for number in range(4)), host=busy))

    assert "the cores of the host are busy 99 % of the time" in verdict.evidence
    assert "leave cores free" in verdict.advice[0]


# --------------------------------------------------------------------------- launch and healthy
def test_launch_bound_is_sized_by_utilization() -> None:
    starved = COMPUTE | STARVED
    known = facts(
        rank(0, util_percent=55.0, sm_active=0.22), rank(1, util_percent=50.0, sm_active=0.2)
    )

    verdict = told(window(starved, starved), known)

    assert verdict.kind == "LAUNCH"
    assert verdict.share == pytest.approx(0.5)
    assert verdict.gain_bound == pytest.approx(2.0)
    assert "the GPU of rank 1 is busy 50 % of the time, its SMs 20 %" in verdict.evidence


def test_launch_bound_of_unknown_size_claims_no_gain() -> None:
    starved = COMPUTE | STARVED

    verdict = told(window(starved, starved), facts(rank(0), rank(1)))

    assert (verdict.kind, verdict.share, verdict.gain_bound) == ("LAUNCH", None, None)
    assert "%" not in verdict.headline


def test_a_starved_gpu_that_is_busy_all_the_time_is_undecided() -> None:
    starved = COMPUTE | STARVED

    verdict = told(window(starved), facts(rank(0, util_percent=97.0)))

    assert verdict.kind == "UNDECIDED"


def test_a_starved_rank_that_is_busy_all_the_time_is_undecided() -> None:
    # given a rank that is slow in forward, and whose host waits there for a result
    slow = COMPUTE | STARVED | {"forward": 40_000}
    fast = COMPUTE | {"exposed": 20_200}

    idle = told(window(fast, slow), facts(rank(0), rank(1, util_percent=60.0)))
    busy = told(window(fast, slow), facts(rank(0), rank(1, util_percent=99.0)))

    assert (idle.kind, idle.rank) == ("LAUNCH", 1)
    assert busy.kind == "UNDECIDED"
    assert "busy 99 %" in " ".join(busy.evidence)


def test_compiling_is_not_advised_to_a_compiled_model() -> None:
    starved = window(COMPUTE | STARVED)

    assert "torch.compile" in " ".join(told(starved, facts(rank(0))).advice)
    compiled = facts(rank(0), script={"compile": True})
    assert "torch.compile" not in " ".join(told(starved, compiled).advice)


def test_healthy_needs_gpus_that_are_busy() -> None:
    win = window(COMPUTE, COMPUTE)

    healthy = told(win, facts(rank(0, util_percent=99.0), rank(1, util_percent=98.0)))
    idle = told(win, facts(rank(0, util_percent=99.0), rank(1, util_percent=30.0)))

    assert (healthy.kind, healthy.severity, healthy.gain_bound) == ("COMPUTE-BOUND", "ok", None)
    assert healthy.headline == "Healthy: the GPUs compute 100 % of each step"
    assert idle.kind == "UNDECIDED"
    assert "busy 30 %" in " ".join(idle.evidence)


def test_healthy_needs_gpus_that_are_behind_their_hosts() -> None:
    between = COMPUTE | {"lag_forward_us": 900, "lag_backward_us": 1500}

    win = window(between, between)

    assert told(win, facts(rank(0), rank(1))).kind == "UNDECIDED"
    stands = Held("COMPUTE-BOUND", None, None, "ok", 0, 0)
    assert told(win, facts(rank(0), rank(1)), stands).kind == "COMPUTE-BOUND"


def test_time_outside_of_training_is_told_where_it_passes() -> None:
    evaluates = COMPUTE | {"other": 30_000}

    verdict = told(window(evaluates, evaluates), facts(rank(0), rank(1)))

    assert verdict.kind == "UNDECIDED"
    assert "37 % of each step passes between the optimizer and the next batch" in verdict.headline


def test_a_slow_optimizer_is_advised_to_fuse_only_where_it_is_not() -> None:
    slow = window(COMPUTE | {"optimizer": 15_300})

    off = told(slow, facts(rank(0), optimizer={"foreach": False, "fused": None}))
    on = told(slow, facts(rank(0), optimizer={"foreach": False, "fused": True}))
    default = told(slow, facts(rank(0), optimizer={"foreach": None, "fused": None}))

    assert off.kind == "COMPUTE-BOUND"
    assert "foreach=True" in " ".join(off.advice)
    assert on.advice == default.advice == ()


@pytest.mark.parametrize(
    "win",
    [window(STALL, STALL), window(COMM, COMM), window(COMPUTE, COMPUTE), window(STALL)],
    ids=["data", "comm", "healthy", "one rank"],
)
def test_there_are_a_few_short_sentences_and_no_unknown_in_them(win: Window) -> None:
    verdict = told(win, Facts())

    assert 1 <= len(verdict.evidence) <= 4
    for sentence in (*verdict.evidence, *verdict.advice, verdict.headline):
        assert len(sentence) < 140
        assert not re.search(r"None|nan|\{|\}", sentence)


def test_one_rank_is_never_told_of_others() -> None:
    # given one rank with exposed time, as after a backward that synchronises nothing
    _, ranked = judge(window(COMM), Facts(), None, DEFAULT)

    assert not {c.kind for c in ranked} & {"COMM", "STRAGGLER"}


def test_on_a_cpu_there_is_no_launch_verdict() -> None:
    zero = {"lag_forward_us": 0, "lag_backward_us": 0, "lag_width_us": 0}
    win = window(COMPUTE | zero, COMPUTE | zero, cuda=False)

    verdict, ranked = judge(win, Facts(), None, replace(DEFAULT))

    assert verdict.kind == "COMPUTE-BOUND"
    assert verdict.headline == "Healthy: the CPUs compute 100 % of each step"
    assert "LAUNCH" not in {c.kind for c in ranked}
