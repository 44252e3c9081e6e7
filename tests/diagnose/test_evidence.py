"""Evidence and advice: numbers that can be checked, and nothing that is not known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from diagnose.made import row, window
from torchtop.diagnose.candidate import Candidate
from torchtop.diagnose.context import Learnt, gather
from torchtop.diagnose.devices import NodeState
from torchtop.diagnose.facts import Facts, GpuFacts, HostFacts, RankFacts, Stranger, Utilization
from torchtop.diagnose.frontier import account
from torchtop.diagnose.hysteresis import Held
from torchtop.diagnose.pace import Paces
from torchtop.diagnose.ranks import RankState
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.diagnose.told import host
from torchtop.diagnose.told.case import Case
from torchtop.diagnose.verdict import Verdict
from torchtop.diagnose.verdicts import judge
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


GPU = {"name": "NVIDIA H200", "sm_clock_max_mhz": 1980.0}


def rank(
    number: int,
    loader: dict[str, Any] | None = None,
    gpu: dict[str, Any] | None = None,
    **known: Any,
) -> RankFacts:
    device = GpuFacts(index=number, **GPU | (gpu or {}))
    return RankFacts(number, "a", LOADER | (loader or {}), queue=8, gpu=device, **known)


def facts(*ranks: RankFacts, host: HostFacts | None = None, **known: Any) -> Facts:
    host = host or HostFacts(cores=32, cpu_percent=37.5, ranks=len(ranks), workers=4 * len(ranks))
    return Facts(ranks=ranks, hosts={"a": host}, **known)


def told(win: Window, known: Facts, held: Held | None = None) -> Verdict:
    return judge(win, known, held, DEFAULT).verdict


# ------------------------------------------------------------------------------------------ data
def test_a_data_stall_is_told_with_what_the_screen_shows() -> None:
    ranks = [rank(r, worker_percent=99.0, ready=0.2) for r in (0, 1)]

    verdict = told(window(STALL, STALL), facts(*ranks))

    assert verdict.kind == "DATA"
    assert verdict.headline == (
        "Waiting for data 38 % of each step: up to 1.6x faster; too few workers"
    )
    assert verdict.evidence == (
        "the GPU waits for a batch 30.0 ms of a 80.0 ms step; the ranks wait 30.0 ms each",
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
    disk = HostFacts(32, 10.0, ranks=2, workers=8, disk_read_bytes_per_s=250e6)

    verdict = told(window(STALL, STALL), facts(*ranks, host=disk))

    assert verdict.cause == "storage"
    assert "num_workers=7 instead of 4: workers that wait need no core" in verdict.advice[0]
    assert "local disk" in verdict.advice[1]
    assert "its disks read 250 MB/s" in verdict.evidence


@pytest.mark.parametrize(
    ("known", "host", "cause"),
    [
        ({"worker_percent": 99.0}, {}, "too_few_workers"),
        ({"worker_percent": 99.0}, {"cores": 8}, "busy_workers"),
        ({"worker_percent": 50.0}, {"cpu_percent": 97.0}, "busy_workers"),
        ({"worker_percent": 10.0}, {"cores": 8}, "storage"),
        ({"worker_percent": 30.0}, {"cpu_percent": 97.0}, "busy_workers"),
        ({"worker_percent": 2.0}, {"cpu_percent": 97.0}, "storage"),
        ({"ready": 6.0}, {}, "main_process"),
        ({"loader": {"workers": 0}}, {}, "no_workers"),
        ({}, {}, None),
    ],
)
def test_why_batches_are_late(
    known: dict[str, Any], host: dict[str, Any], cause: str | None
) -> None:
    about = HostFacts(**{"cores": 32, "cpu_percent": 10.0, "ranks": 2, "workers": 8} | host)

    verdict = told(window(STALL, STALL), facts(rank(0, **known), rank(1, **known), host=about))

    assert (verdict.kind, verdict.cause) == ("DATA", cause)


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


def test_batches_that_are_ready_are_fetched_too_slowly() -> None:
    # given a queue that is nearly full, and a host that is long in next() all the same
    known = facts(*(rank(r, {"pin_memory": False}, ready=7.8) for r in (0, 1)))

    verdict = told(window(STALL, STALL), known)

    assert verdict.cause == "main_process"
    assert any("7.8 of 8" in sentence for sentence in verdict.evidence)
    assert "pin_memory=True (it is off)" in verdict.advice[0]
    assert "num_workers" not in " ".join(verdict.advice)


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
        "parameters": 1_000_000_000,
        "gradient_bytes": 2_000_000_000,
    }
    off = {
        "gradient_as_bucket_view": False,
        "find_unused_parameters": False,
        "parameters": 1_000_000_000,
        "gradient_bytes": 4_000_000_000,
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
    cold = {"sm_clock_mhz": 1980.0, "util_percent": 99.0}
    hot = cold | {"sm_clock_mhz": 1200.0, "throttle": {"hw_thermal_slowdown": 1.0}}
    other = (Stranger(4242, "python", 2_100_000_000),)

    throttled = told(window(fast, slow), facts(rank(0, gpu=cold), rank(1, gpu=hot)))
    shared = told(window(fast, slow), facts(rank(0), rank(1, gpu={"strangers": other})))

    assert (throttled.kind, throttled.rank, throttled.phase) == ("THROTTLED", 1, "backward")
    assert throttled.share == shared.share == pytest.approx(0.37, abs=0.01)
    assert "GPU 1 is throttled, costing 37 %: up to 1.6x faster" in throttled.headline
    assert "check the cooling" in throttled.advice[0]
    assert (shared.kind, shared.rank, shared.cause) == ("CONTENTION", 1, "processes")
    assert "on GPU 1 also: python (pid 4242) with 2.1 GB" in shared.evidence


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

    assert "the 2 cores of the host are busy 99 % of the time" in verdict.evidence
    assert "leave cores free" in verdict.advice[0]


# --------------------------------------------------------------------------- launch and healthy
def test_launch_bound_is_sized_by_utilization() -> None:
    starved = COMPUTE | STARVED
    known = facts(
        rank(0, gpu={"util_percent": 55.0, "sm_active": 0.22}),
        rank(1, gpu={"util_percent": 50.0, "sm_active": 0.2}),
    )

    verdict = told(window(starved, starved), known)

    assert verdict.kind == "LAUNCH"
    assert verdict.share == pytest.approx(0.5)
    # the bound allows for utilization that is told in whole percent
    assert verdict.gain_bound == pytest.approx(1 / 0.495)
    assert "the GPU of rank 1 is busy 50 % of the time, its SMs 20 %" in verdict.evidence


def test_the_bound_allows_for_kernels_too_short_for_utilization() -> None:
    # given two GPUs busy 20 % of the time, one with kernels of a few blocks
    starved = window(COMPUTE | STARVED)
    busy = {"util_percent": 20.0}

    tiny = told(starved, facts(rank(0, gpu=busy | {"sm_active": 0.01})))
    large = told(starved, facts(rank(0, gpu=busy | {"sm_active": 0.12})))
    # and one that is busy more than not with a kernel that spins
    spins = told(starved, facts(rank(0, gpu={"util_percent": 60.0, "sm_active": 0.01})))

    assert tiny.share == large.share == pytest.approx(0.8)
    assert large.gain_bound == pytest.approx(1 / (0.2 - 0.005))
    assert tiny.gain_bound == pytest.approx(1 / (0.2 * DEFAULT.short_kernel_part - 0.005))
    assert spins.gain_bound == pytest.approx(1 / (0.6 - 0.005))


def test_a_wait_goes_away_with_what_the_device_does_for_it() -> None:
    # given a host that waits 6 ms of 20 between backward and optimizer, for a check of 1 ms
    reads = {
        "forward": 10_000,
        "backward": 8_000,
        "pre_optimizer": 1_000,
        "optimizer": 1_000,
        "local_host_us": (7_000, 1_000, 10, 10, 10_000, 2_000),
        "local_lag_us": (5, 20, 20, 20, 20, 6_000),
        "lag_width_us": 20,
    }

    verdict = told(window(reads), facts(rank(0, gpu={"util_percent": 60.0})))

    assert (verdict.kind, verdict.phase) == ("SYNC", "pre_optimizer")
    # then a step without both is the 13 ms that its host issues the rest in
    assert verdict.gain_bound == pytest.approx(20 / 13, rel=0.01)


def test_gpus_that_take_turns_at_waiting_are_idle_all_the_same() -> None:
    # given ranks that each lead for some seconds, while the other's GPU spins and seems busy
    starved = COMPUTE | STARVED
    gpus = [{"util_percent": 60.0}, {"util_percent": 56.0}]
    known = facts(*(rank(n, gpu=g) for n, g in enumerate(gpus)), idlest=Utilization(20.0, 1.0))

    verdict = told(window(starved, starved), known)

    assert (verdict.kind, verdict.share) == ("LAUNCH", pytest.approx(0.8))
    assert verdict.gain_bound == pytest.approx(1 / (1 - 0.805))
    assert "the least busy GPU is busy 20 % of it; one that waits" in " ".join(verdict.evidence)


def test_the_least_busy_gpu_is_looked_for_second_by_second() -> None:
    utils = [[100, 20], [18, 100], [100, None], [22, 91], [20, 100]]
    node = NodeState()
    gpus = [{"uuid": f"GPU-{n}", "index": n} for n in (0, 1)]
    node.take({"kind": "header", "host": "a", "gpus": gpus})
    for second, values in enumerate(utils):
        tick = {"kind": "tick", "mono_ns": second * 10**9, "gpus": {"util_percent": values}}
        node.take(tick)
    states = {n: RankState(n, 0, "", {"host": "a", "device": {"uuid": f"GPU-{n}"}}) for n in (0, 1)}
    rows = [row(0, at_ns=0, host_us=0), row(0, at_ns=0, host_us=0)]
    steps = [account(rows), account([r._replace(step=1, end_ns=5 * 10**9) for r in rows])]

    found = gather(states, {"a": node}, steps, Learnt({}, Paces()), 0, DEFAULT)

    assert found.idlest is not None
    assert found.idlest.mean == pytest.approx(20)  # but for the second in which one is not known
    assert found.of(0).gpu.util_percent == pytest.approx(52)


def test_launch_bound_of_unknown_size_claims_no_gain() -> None:
    starved = COMPUTE | STARVED

    verdict = told(window(starved, starved), facts(rank(0), rank(1)))

    assert (verdict.kind, verdict.share, verdict.gain_bound) == ("LAUNCH", None, None)
    assert "%" not in verdict.headline


def test_a_starved_gpu_that_is_busy_all_the_time_is_undecided() -> None:
    starved = COMPUTE | STARVED

    verdict = told(window(starved), facts(rank(0, gpu={"util_percent": 97.0})))

    assert verdict.kind == "UNDECIDED"


def test_a_starved_rank_that_is_busy_all_the_time_is_undecided() -> None:
    # given a rank that is slow in forward, and whose host waits there for a result
    slow = COMPUTE | STARVED | {"forward": 40_000}
    fast = COMPUTE | {"exposed": 20_200}

    idle = told(window(fast, slow), facts(rank(0), rank(1, gpu={"util_percent": 60.0})))
    busy = told(window(fast, slow), facts(rank(0), rank(1, gpu={"util_percent": 99.0})))

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

    healthy = told(
        win, facts(rank(0, gpu={"util_percent": 99.0}), rank(1, gpu={"util_percent": 98.0}))
    )
    idle = told(
        win, facts(rank(0, gpu={"util_percent": 99.0}), rank(1, gpu={"util_percent": 30.0}))
    )

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
    assert "by rank 30.0 ms to 30.0 ms" in verdict.evidence[1]
    assert "by rank" not in told(window(evaluates), facts(rank(0))).evidence[1]
    # and where a step is of several batches, the same phase lies between them, too
    of_four = told(
        window(evaluates | {"samples": 64}), facts(rank(0, {"first_batch": {"samples": 16}}))
    )
    assert "after the optimizer or between the batches of a step" in of_four.headline


def test_an_optimizer_is_a_bottleneck_only_where_it_could_be_faster() -> None:
    slow = window(COMPUTE | {"optimizer": 15_300})
    ddp = {"parameters": 670_000_000}
    adam = {"optimizer": "AdamW", "foreach": False, "fused": None}

    loop = told(slow, facts(rank(0), optimizer=adam, ddp=ddp))
    default = told(slow, facts(rank(0), optimizer=adam | {"foreach": None}, ddp=ddp))
    fused = told(slow, facts(rank(0), optimizer=adam | {"fused": True}, ddp=ddp))
    huge = told(slow, facts(rank(0), optimizer=adam, ddp={"parameters": 2_500_000_000}))

    assert (loop.kind, loop.phase, loop.cause) == ("OPTIMIZER", "optimizer", "per_tensor")
    assert loop.share == pytest.approx(15.3 / 65.5, abs=0.01)
    assert loop.gain_bound == pytest.approx(65.5 / (65.5 - 15.3 + 3.9), rel=0.01)
    assert "fused=True (foreach=False, fused=None now)" in loop.advice[0]
    assert any("670 million parameters takes about 3.9 ms" in text for text in loop.evidence)
    assert (default.kind, default.cause) == ("OPTIMIZER", "not_fused")
    assert fused.kind == huge.kind == "COMPUTE-BOUND"


@pytest.mark.parametrize(
    "win",
    [window(STALL, STALL), window(COMM, COMM), window(COMPUTE, COMPUTE), window(STALL)],
    ids=["data", "comm", "healthy", "one rank"],
)
def test_there_are_a_few_short_sentences_and_no_unknown_in_them(win: Window) -> None:
    verdict = told(win, Facts())

    assert 1 <= len(verdict.evidence) <= 4
    for sentence in (*verdict.evidence, *verdict.advice, verdict.headline):
        assert len(sentence) < 160
        assert not re.search(r"None|nan|\{|\}", sentence)


def test_one_rank_is_never_told_of_others() -> None:
    # given one rank with exposed time, as after a backward that synchronises nothing
    _, ranked, _ = judge(window(COMM), Facts(), None, DEFAULT)

    assert not {c.kind for c in ranked} & {"COMM", "STRAGGLER"}


def test_on_a_cpu_there_is_no_launch_verdict() -> None:
    zero = {"lag_forward_us": 0, "lag_backward_us": 0, "lag_width_us": 0}
    win = window(COMPUTE | zero, COMPUTE | zero, cuda=False)

    verdict, ranked, _ = judge(win, Facts(), None, replace(DEFAULT))

    assert verdict.kind == "COMPUTE-BOUND"
    assert verdict.headline == "Healthy: the CPUs compute 100 % of each step"
    assert "LAUNCH" not in {c.kind for c in ranked}


# ----------------------------------------------------------------------------- links and copies
GRADIENTS = {
    "parameters": 537_000_000,
    "gradient_bytes": 2_148_000_000,
    "buckets": [268_500_000] * 8,
    "gradient_as_bucket_view": False,
}
"""Of a perceptron on H200, where a step took 12.9 ms."""
MEASURED = {"forward": 2_168, "backward": 5_306, "optimizer": 1_705, "exposed": 3_730} | LAG


def over_links(links: int | None, sent: float | None, hosts: tuple[str, ...] = ("a", "a")) -> str:
    """The third sentence of evidence, of ranks whose GPUs send so many bytes a second."""
    known = [
        replace(rank(number, gpu={"nvlink_links": links, "nvlink_bytes_per_s": sent}), host=host)
        for number, host in enumerate(hosts)
    ]
    verdict = told(window(MEASURED, MEASURED), facts(*known, ddp=GRADIENTS))
    assert verdict.kind == "COMM"
    return "\n".join((*verdict.evidence, *verdict.advice))


def test_communication_is_told_with_its_link() -> None:
    told_of = over_links(18, 170e9)

    assert "2.1 GB of gradients in 8 buckets over 2 ranks; only the 5.3 ms of backward" in told_of
    assert "reaches at least 238 GB/s over NVLink, which can do 450 GB/s" in told_of
    assert "NCCL leaves out" not in told_of


def test_links_that_carry_nothing_are_told_first() -> None:
    told_of = over_links(18, 0.4e9)

    assert "over PCIe or host memory: the 18 NVLinks carry nothing" in told_of
    assert "find out why NCCL leaves out NVLink" in told_of


@pytest.mark.parametrize(
    ("links", "sent", "hosts", "path"),
    [
        (0, None, ("a", "a"), "238 GB/s over PCIe"),
        (18, 170e9, ("a", "b"), "238 GB/s over the network"),
        (None, None, ("a", "a"), "238 GB/s"),
        (18, None, ("a", "a"), "238 GB/s over NVLink, which can do 450 GB/s"),
    ],
)
def test_the_path_of_gradients(
    links: int | None, sent: float | None, hosts: tuple[str, ...], path: str
) -> None:
    line = next(text for text in over_links(links, sent, hosts).splitlines() if "reaches" in text)

    assert line.endswith(path)


def test_gradients_that_are_compressed_already_are_not_to_be_compressed() -> None:
    assert "bf16_compress_hook" in over_links(18, 170e9)
    assert "bf16_compress_hook" not in over_links(18, 85e9)


def test_a_single_bucket_is_cut() -> None:
    one = GRADIENTS | {"buckets": [2_148_000_000], "bucket_cap_bytes": 4_000_000_000}
    tiny = GRADIENTS | {
        "buckets": [96_000],
        "gradient_bytes": 96_000,
        "bucket_cap_bytes": 26_214_400,
    }

    big = told(window(MEASURED, MEASURED), facts(rank(0), rank(1), ddp=one))
    small = told(window(MEASURED, MEASURED), facts(rank(0), rank(1), ddp=tiny))

    assert "bucket_cap_mb=256 instead of 3815" in " ".join(big.advice)
    assert "bucket_cap_mb" not in " ".join(small.advice)
    assert "bf16" not in " ".join(small.advice)


def test_a_run_that_accumulates_is_told_to_do_so_over_more() -> None:
    first = {"first_batch": {"bytes": 10, "pinned": True, "samples": 32}}
    ranks = [rank(number, first) for number in (0, 1)]
    samples = MEASURED | {"samples": 128}

    verdict = told(window(samples, samples), facts(*ranks, ddp=GRADIENTS))

    assert "accumulate over more than the 4 batches of now" in " ".join(verdict.advice)


COPIES = {"forward": 60_000, "backward": 30_000, "exposed": 200, "data_host_us": 90} | {
    "lag_forward_us": 40_000,
    "lag_backward_us": 60_000,
    "lag_width_us": 20,
}
LARGE = {"pin_memory": False, "first_batch": {"bytes": 400_000_000, "pinned": False, "samples": 64}}


def copied(loader: dict[str, Any], rx: float | None = None, **changes: int) -> Verdict:
    values = COPIES | changes
    known = facts(rank(0, LARGE | loader, gpu={"pcie_rx_bytes_per_s": rx}))
    return told(window(values), known)


def test_a_large_batch_that_is_not_pinned_is_copied() -> None:
    verdict = copied({}, rx=4.4e9)

    assert (verdict.kind, verdict.cause) == ("H2D", "unpinned")
    assert verdict.share == pytest.approx((60 - 0.55 * 30) / 90.2, abs=0.01)
    assert "rank 0 copies 400 MB a step, from memory that is not pinned: about 43.5 ms" in (
        verdict.evidence
    )
    assert "PCIe brings 4.4 GB/s to its GPU" in verdict.evidence
    assert verdict.advice[0].startswith("pin_memory=True in the DataLoader (it is off)")


def test_a_large_batch_that_is_pinned_takes_the_time_of_the_link() -> None:
    verdict = copied({"first_batch": {"bytes": 2_000_000_000, "pinned": True}})

    assert (verdict.kind, verdict.cause) == ("H2D", "large")
    assert "pin_memory" not in " ".join(verdict.advice)
    assert "send less (2.0 GB now)" in " ".join(verdict.advice)


def test_a_batch_that_pcie_does_not_carry_is_on_the_device_already() -> None:
    assert copied({}, rx=20e6).kind != "H2D"


def test_what_launches_bring_over_pcie_is_no_batch() -> None:
    # given batches of which 0.28 GB/s would be copied, and an H200 whose launches took 0.147
    batch = {"first_batch": {"bytes": 25_000_000, "pinned": False, "samples": 64}}

    assert copied(batch, rx=0.147e9).kind != "H2D"
    assert copied(batch, rx=0.3e9).kind == "H2D"


def test_a_host_that_is_far_ahead_has_not_waited_for_a_copy() -> None:
    assert copied({}, lag_forward_us=200_000, lag_backward_us=220_000).kind == "COMPUTE-BOUND"


def test_a_small_batch_takes_no_time_to_copy() -> None:
    small = {"first_batch": {"bytes": 1_600_000, "pinned": False, "samples": 64}}

    assert copied(small).kind != "H2D"


@pytest.mark.parametrize("first", [None, {}, {"bytes": None}, {"bytes": 0}, "odd"])
def test_a_batch_of_unknown_size_is_no_copy(first: Any) -> None:
    assert copied({"first_batch": first}).kind != "H2D"


# ------------------------------------------------------------------------------- healthy, advice
def test_tensor_cores_that_idle_are_told_to_a_healthy_run() -> None:
    idle = {"util_percent": 98.0, "sm_active": 0.9, "tensor_active": 0.007, "dram_active": 0.3}
    busy = idle | {"tensor_active": 0.6}
    win = window(COMPUTE)

    cold, hot = told(win, facts(rank(0, gpu=idle))), told(win, facts(rank(0, gpu=busy)))
    amp = told(win, facts(rank(0, gpu=idle), script={"amp": True}))

    assert cold.severity == hot.severity == "ok"
    assert (
        "the GPU of rank 0 is busy 98 % of the time: SMs 90 %, tensor cores 1 %, memory 30 %"
        in (cold.evidence)
    )
    assert "the tensor cores are active 1 % of the time: torch.autocast" in cold.advice[0]
    assert hot.advice == amp.advice == ()


def test_kernels_that_are_bound_by_memory_are_to_be_fused() -> None:
    gpu = {"util_percent": 98.0, "tensor_active": 0.3, "dram_active": 0.7}
    win = window(COMPUTE)

    plain = told(win, facts(rank(0, gpu=gpu)))
    compiled = told(win, facts(rank(0, gpu=gpu), script={"compile": True}))

    assert "memory is busy 70 % of the time: torch.compile" in plain.advice[0]
    assert compiled.advice == ()


def test_a_cpu_run_is_told_of_cores_that_are_idle() -> None:
    zero = {"lag_forward_us": 0, "lag_backward_us": 0, "lag_width_us": 0}
    win = window(COMPUTE | zero, COMPUTE | zero, cuda=False)
    ranks = [rank(number, cpu_percent=100.0) for number in (0, 1)]
    busy = HostFacts(cores=2, cpu_percent=99.0, ranks=2)

    few = told(win, facts(*ranks, host=HostFacts(cores=32, cpu_percent=8.0, ranks=2)))
    all_of_them = told(win, facts(*ranks, host=busy))

    assert "29 of 32 cores are idle, and a rank uses 1.0" in few.advice[0]
    assert all_of_them.advice == ()
    assert "2 ranks share 2 cores, 99 % busy" in all_of_them.evidence


def test_a_wait_in_every_step_that_costs_nothing_is_mentioned() -> None:
    # given a host that waits 25 ms of each step for its GPU, which is never idle
    hosts = (10, 500, 25_000, 90, 1_000, 2_000)
    lags = (20_000, 25_000, 5, 5, 15_000, 40_000)
    values = COMPUTE | {"local_host_us": hosts, "local_lag_us": lags, "optimizer": 500}

    verdict = told(window(values), facts(rank(0, gpu={"util_percent": 99.0})))

    assert verdict.kind == "COMPUTE-BOUND"
    assert any(
        "between the optimizer and the next batch; that costs less than 5 % here" in text
        for text in verdict.evidence
    )


# ------------------------------------------------------------------------------------------ sync
def of_sync(*waiting: str, inspected: bool = True) -> tuple[list[str], list[str]]:
    """Evidence and advice of a SYNC verdict, with what an inspection has found."""
    known = facts(rank(0, waiting=waiting if inspected else None), rank(1))
    case = Case(Candidate("SYNC", 0.2, None, "other"), window(COMPUTE, COMPUTE), known, DEFAULT)
    return (
        [text for text in host.sync_evidence(case) if text],
        [text for text in host.sync_advice(case) if text],
    )


def test_a_sync_that_was_inspected_is_told_by_its_lines() -> None:
    calls = [f"loss.item() at train.py:{line}, 1 a step" for line in range(88, 93)]

    evidence, advice = of_sync(*calls)

    assert evidence[-3:] == calls[:3]
    assert not any("torchtop inspect" in text for text in advice)


def test_a_sync_of_unknown_lines_is_told_with_the_way_to_them() -> None:
    for told in (of_sync(inspected=False), of_sync()):
        assert any("torchtop inspect, or i in the viewer, names the lines" in t for t in told[1])
