"""Simulated runs with a known bottleneck, and what must be told of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from diagnose.play import Played, play
from diagnose.sim_records import Sampler, Told, records
from diagnose.simulator import Job, Loader, Pause, Rank, Run, simulate

GPU_BOUND = Job(ranks=(Rank(),) * 2, steps=220)
ONE_GPU = replace(GPU_BOUND, ranks=(Rank(),))
CPU = replace(GPU_BOUND, cuda=False)
TINY = Rank(forward_us=5, backward_us=5, optimizer_us=5, launch_us=120, loader=Loader(4_000))
LAUNCH_BOUND = Job(ranks=(TINY,) * 2, bucket_us=20, steps=320, host_jitter=0.03)
TOUCHY = Job(
    ranks=(Rank(forward_us=4, launch_us=25, backward_us=250, optimizer_us=200),) * 2,
    forward_kernels=300,
    backward_kernels=60,
    steps=300,
)
"""Bound by the GPU as long as the host is ahead: forward is launches, backward is work."""
SLOW = Loader(batch_us=280_000)
"""One worker needs 280 ms a batch, so four of them deliver one in 70 ms; a step computes 38 ms."""
SLEEP = 40_000.0
BATCH = {"first_batch": {"bytes": 400_000_000, "pinned": False, "samples": 64}, "pin_memory": False}
ADAM = {"optimizer": "AdamW", "foreach": False, "fused": None}

Verdict = tuple[str, int | None, str | None]
HEALTHY: Verdict = ("COMPUTE-BOUND", None, None)
DATA: Verdict = ("DATA", None, "data")
COMM: Verdict = ("COMM", None, "exposed_comm")


@dataclass(frozen=True)
class Case:
    """A run and the verdict that it must be given, with the sampler's records and without."""

    job: Job
    verdict: Verdict
    cause: str | None = None
    fixed: Job | None = None
    """The same run with the cause taken away."""
    sampler: Sampler | None = None
    told: Told | None = None
    bare: Verdict | None = None
    """What it must be told where there is no sampler, if something else."""
    old: Verdict | None = None
    """What it must be told by a probe that tells less, if something else."""


def _sleeper(job: Job, place: str) -> Job:
    return job.with_rank(1, sleep_us={place: SLEEP})


def _phased(job: Job, count: int) -> Job:
    """Every rank has the slow loader, and starts it at a time of its own."""
    loaders = [replace(SLOW, offset_us=280_000 / count * index) for index in range(count)]
    return replace(job, ranks=tuple(Rank(loader=loader) for loader in loaders))


def _rotating() -> Job:
    def slow(rank: int) -> Callable[[int], dict[str, float]]:
        return lambda step: {"backward": 25_000.0 if step * 7919 % 4 == rank else 0.0}

    return replace(GPU_BOUND, ranks=tuple(Rank(extra_us=slow(rank)) for rank in range(4)))


def _balanced() -> Job:
    """The same work, in equal parts."""
    ranks = tuple(Rank(extra_us=lambda step: {"backward": 6_250.0}) for _ in range(4))
    return replace(GPU_BOUND, ranks=ranks)


def _every(steps: int, what: str, us: float) -> Callable[[int], Pause | None]:
    return lambda step: Pause(what, us) if step and step % steps == steps - 1 else None


def _loading(loader: Loader, job: Job = GPU_BOUND) -> Job:
    return job.with_all(loader=loader)


GROUP = (Rank(),) * 4 + (Rank(backward_us=300),) * 2
HOST = LAUNCH_BOUND.with_rank(1, launch_us=123.6)
ASLEEP = HOST.with_all(sleep_us={"pre_optimizer": 20_000.0})
NO_COMM = replace(GPU_BOUND, bucket_us=0)
LONG = replace(GPU_BOUND, steps=400)
COPIES = GPU_BOUND.with_all(copy_us=40_000, pageable=True)
HOT = {"sm_clock_mhz": 1320, "throttle": ["hw_thermal_slowdown"], "temperature_c": 92}
OTHERS = {1: [{"process_pid": 9, "used_bytes": 2_000_000_000, "name": "python"}]}

HEALTHY_RUNS = {
    "gpu-bound": Case(GPU_BOUND, HEALTHY),
    "gpu-bound, 8 ranks": Case(replace(GPU_BOUND, ranks=(Rank(),) * 8, host_jitter=0.1), HEALTHY),
    "gpu-bound, one gpu": Case(ONE_GPU, HEALTHY),
    "gpu-bound, batch norm": Case(replace(GPU_BOUND, broadcast=True), HEALTHY),
    "loss.item() after the step": Case(
        replace(GPU_BOUND, sync=("other",)), HEALTHY, sampler=Sampler()
    ),
    "scaler": Case(
        replace(GPU_BOUND, sync=("pre_optimizer",), skipped=lambda step: step % 9 == 0),
        HEALTHY,
        sampler=Sampler(),
    ),
    "every optimizer step is skipped": Case(replace(GPU_BOUND, skipped=lambda step: True), HEALTHY),
    "a sync in forward": Case(
        replace(TOUCHY, sync=("forward",)),
        HEALTHY,
        sampler=Sampler(),
        bare=("SYNC", None, "forward"),
    ),
    "a touchy host that is ahead": Case(TOUCHY, HEALTHY),
    "accumulation": Case(replace(GPU_BOUND, micro_batches=4, bucket_us=3_000), HEALTHY),
    "accumulation with loss.item()": Case(
        replace(GPU_BOUND, micro_batches=4, sync=("other",)), HEALTHY, sampler=Sampler()
    ),
    "reentrant checkpointing": Case(replace(GPU_BOUND, reentrant=True), HEALTHY),
    "a rank that starts late": Case(GPU_BOUND.with_rank(1, start_us=8e6), HEALTHY),
    "loader hidden": Case(
        _loading(Loader(batch_us=120_000), replace(GPU_BOUND, queue=100_000)), HEALTHY
    ),
    "cpu": Case(replace(CPU, bucket_us=30), HEALTHY),
    "batches on the gpu already": Case(GPU_BOUND, HEALTHY, told=Told(loader=BATCH)),
    "garbage collected behind a queue": Case(
        replace(GPU_BOUND, queue=10_000).with_rank(1, pause=_every(50, "gc", 100_000)), HEALTHY
    ),
    "one checkpoint": Case(
        LONG.with_rank(0, pause=lambda step: Pause("save", 2e6) if step == 250 else None), HEALTHY
    ),
    "a fused optimizer": Case(
        GPU_BOUND.with_all(optimizer_us=1500),
        HEALTHY,
        told=Told(optimizer=ADAM | {"fused": True}),
    ),
    "at the power limit": Case(
        GPU_BOUND,
        HEALTHY,
        sampler=Sampler(gpu={"sm_clock_mhz": 1450, "throttle": ["sw_power_cap"]}),
    ),
    "a notebook on the gpu": Case(GPU_BOUND, HEALTHY, sampler=Sampler(strangers=OTHERS)),
    "ranks that compete for cores": Case(
        replace(CPU, bucket_us=3_500),
        HEALTHY,
        sampler=Sampler(cores=2, cpu_percent=99.0),
        bare=COMM,
    ),
}

FAULTS = {
    "slow loader": Case(_loading(SLOW), DATA, "too_few_workers", GPU_BOUND, Sampler()),
    "slow loader, busy cores": Case(
        _loading(SLOW), DATA, "busy_workers", GPU_BOUND, Sampler(cores=8, cpu_percent=97.0)
    ),
    "slow storage": Case(
        _loading(replace(SLOW, cpu_part=0.1)), DATA, "storage", GPU_BOUND, Sampler()
    ),
    "slow loader, out of phase": Case(_phased(GPU_BOUND, 2), DATA, fixed=GPU_BOUND),
    "slow loader, 8 ranks out of phase": Case(
        _phased(GPU_BOUND, 8), DATA, fixed=replace(GPU_BOUND, ranks=(Rank(),) * 8)
    ),
    "slow loader, cpu": Case(_loading(SLOW, CPU), DATA, fixed=CPU),
    "slow loader, one gpu": Case(_loading(SLOW, ONE_GPU), DATA, fixed=ONE_GPU),
    "no workers": Case(_loading(Loader(batch_us=60_000, workers=0)), DATA, "no_workers", GPU_BOUND),
    "late batches": Case(
        _loading(Loader(slow_every=16, slow_us=900_000), LONG), DATA, "head_of_line", GPU_BOUND
    ),
    "slow fetch": Case(_loading(Loader(next_us=60_000)), DATA, "main_process", GPU_BOUND),
    "unpinned copies": Case(
        COPIES, ("H2D", None, "forward"), "unpinned", GPU_BOUND, told=Told(loader=BATCH)
    ),
    "large copies": Case(
        GPU_BOUND.with_all(copy_us=10_000),
        ("H2D", None, "forward"),
        "large",
        GPU_BOUND,
        told=Told(loader={"first_batch": BATCH["first_batch"] | {"pinned": True}}),  # type: ignore[operator]
    ),
    "small unpinned copies": Case(
        TOUCHY.with_all(copy_us=300, pageable=True),
        ("H2D", None, "forward"),
        "unpinned",
        TOUCHY,
        Sampler(),
        Told(loader={"first_batch": {"bytes": 2_000_000, "samples": 64}, "pin_memory": False}),
        old=HEALTHY,
    ),
    "communication": Case(replace(GPU_BOUND, bucket_us=9_000), COMM, fixed=NO_COMM),
    "communication, cpu": Case(
        replace(CPU, bucket_us=9_000), COMM, fixed=replace(CPU, bucket_us=0)
    ),
    "communication, accumulation": Case(
        replace(GPU_BOUND, micro_batches=2, bucket_us=20_000),
        COMM,
        fixed=replace(NO_COMM, micro_batches=2),
    ),
    "communication, reentrant checkpointing": Case(
        replace(GPU_BOUND, reentrant=True, bucket_us=9_000),
        COMM,
        fixed=replace(NO_COMM, reentrant=True),
    ),
    "late data": Case(
        GPU_BOUND.with_rank(1, loader=SLOW), ("STRAGGLER", 1, "data"), fixed=GPU_BOUND
    ),
    "slow forward": Case(
        GPU_BOUND.with_rank(1, forward_us=300), ("STRAGGLER", 1, "forward"), fixed=GPU_BOUND
    ),
    "slow backward": Case(
        GPU_BOUND.with_rank(1, backward_us=300), ("STRAGGLER", 1, "backward"), fixed=GPU_BOUND
    ),
    "slow backward, reentrant checkpointing": Case(
        replace(GPU_BOUND, reentrant=True).with_rank(1, backward_us=300),
        ("STRAGGLER", 1, "backward"),
        fixed=replace(GPU_BOUND, reentrant=True),
    ),
    "slow backward, launch-bound": Case(
        LAUNCH_BOUND.with_rank(1, extra_us=lambda step: {"backward": 40_000.0}),
        ("STRAGGLER", 1, "backward"),
        fixed=LAUNCH_BOUND,
    ),
    "slow group": Case(
        replace(GPU_BOUND, ranks=GROUP),
        ("STRAGGLER", 4, "backward"),
        fixed=replace(GPU_BOUND, ranks=(Rank(),) * 6),
    ),
    "sleep": Case(
        _sleeper(GPU_BOUND, "pre_optimizer"), ("STRAGGLER", 1, "pre_optimizer"), fixed=GPU_BOUND
    ),
    "sleep, launch-bound": Case(
        _sleeper(LAUNCH_BOUND, "pre_optimizer"),
        ("STRAGGLER", 1, "pre_optimizer"),
        fixed=LAUNCH_BOUND,
    ),
    "sleep in forward": Case(
        GPU_BOUND.with_rank(1, sleep_us={"forward": 60_000.0}),
        ("STRAGGLER", 1, "forward"),
        fixed=GPU_BOUND,
    ),
    "sleep in optimizer": Case(
        _sleeper(GPU_BOUND, "optimizer"), ("STRAGGLER", 1, "optimizer"), fixed=GPU_BOUND
    ),
    "sleep between steps": Case(
        _sleeper(LAUNCH_BOUND, "other"), ("STRAGGLER", 1, "other"), fixed=LAUNCH_BOUND
    ),
    "sleep in backward": Case(
        _sleeper(LAUNCH_BOUND, "backward"), ("STRAGGLER", 1, "backward"), fixed=LAUNCH_BOUND
    ),
    "sleep, cpu": Case(
        _sleeper(CPU, "pre_optimizer"), ("STRAGGLER", 1, "pre_optimizer"), fixed=CPU
    ),
    "late rank 0, batch norm": Case(
        replace(GPU_BOUND, broadcast=True).with_rank(0, sleep_us={"pre_optimizer": 60_000.0}),
        ("STRAGGLER", 0, "pre_optimizer"),
        fixed=replace(GPU_BOUND, broadcast=True),
    ),
    "late data of rank 0, batch norm": Case(
        replace(GPU_BOUND, broadcast=True).with_rank(0, loader=SLOW),
        ("STRAGGLER", 0, "data"),
        fixed=replace(GPU_BOUND, broadcast=True),
    ),
    "rotating": Case(_rotating(), ("STRAGGLER", None, "backward"), fixed=_balanced()),
    "one host 3 % slower": Case(
        HOST, ("LAUNCH", 1, "backward"), fixed=HOST.with_all(launch_us=1.0), sampler=Sampler()
    ),
    "one host 3 % slower, batch norm": Case(
        replace(HOST, broadcast=True),
        ("LAUNCH", 1, "backward"),
        fixed=replace(HOST, broadcast=True).with_all(launch_us=1.0),
        sampler=Sampler(),
    ),
    "all hosts sleep as long": Case(
        ASLEEP,
        ("LAUNCH", 1, "backward"),
        fixed=ASLEEP.with_all(launch_us=1.0),
        sampler=Sampler(),
        old=("STRAGGLER", 1, "pre_optimizer"),
    ),
    "launch-bound, one gpu": Case(
        replace(LAUNCH_BOUND, ranks=LAUNCH_BOUND.ranks[:1]),
        ("LAUNCH", None, "backward"),
        sampler=Sampler(),
        fixed=replace(LAUNCH_BOUND, ranks=(replace(TINY, launch_us=1.0),)),
    ),
    "launch-bound with loss.item()": Case(
        replace(LAUNCH_BOUND, sync=("other",)),
        ("LAUNCH", None, "backward"),
        sampler=Sampler(),
        fixed=replace(LAUNCH_BOUND, sync=("other",)).with_all(launch_us=1.0),
    ),
    "loss.item()": Case(
        replace(TOUCHY, sync=("other",)),
        ("SYNC", None, "other"),
        None,
        TOUCHY,
        Sampler(),
        old=HEALTHY,
    ),
    "scaler that holds up": Case(
        replace(TOUCHY, sync=("pre_optimizer",)),
        ("SYNC", None, "pre_optimizer"),
        None,
        TOUCHY,
        Sampler(),
        old=HEALTHY,
    ),
    "tensor by tensor": Case(
        GPU_BOUND.with_all(optimizer_us=1500),
        ("OPTIMIZER", None, "optimizer"),
        "per_tensor",
        GPU_BOUND.with_all(optimizer_us=15),
        told=Told(optimizer=ADAM),
    ),
    "checkpoints": Case(
        LONG.with_rank(0, pause=_every(20, "save", 500_000)), ("PERIODIC", 0, None), "save", LONG
    ),
    "evaluations": Case(
        replace(GPU_BOUND, steps=700).with_all(pause=_every(120, "eval", 3e6)),
        ("PERIODIC", None, None),
        "eval",
        GPU_BOUND,
    ),
    "garbage": Case(
        LONG.with_rank(1, pause=_every(50, "gc", 800_000)), ("PERIODIC", 1, None), "gc", LONG
    ),
    "long steps at intervals": Case(
        LONG.with_rank(0, pause=_every(20, "", 500_000)), ("PERIODIC", None, "other"), None, LONG
    ),
    "throttled": Case(
        GPU_BOUND.with_rank(1, forward_us=300, backward_us=300),
        ("THROTTLED", 1, "backward"),
        "hw_thermal_slowdown",
        GPU_BOUND,
        Sampler(gpus={1: HOT}),
        bare=("STRAGGLER", 1, "backward"),
    ),
    "all throttled": Case(
        GPU_BOUND.with_all(forward_us=300, backward_us=300, optimizer_us=300),
        ("THROTTLED", 0, None),
        "hw_thermal_slowdown",
        GPU_BOUND,
        Sampler(gpu=HOT),
        bare=HEALTHY,
    ),
    "contention": Case(
        GPU_BOUND.with_rank(1, forward_us=350, backward_us=350, optimizer_us=350),
        ("CONTENTION", 1, "backward"),
        "processes",
        GPU_BOUND,
        Sampler(strangers=OTHERS),
        bare=("STRAGGLER", 1, "backward"),
    ),
    "out of memory again and again": Case(
        COPIES,
        ("MEMORY PRESSURE", 0, None),
        "retries",
        GPU_BOUND,
        Sampler(),
        Told(memory=tuple({"alloc_retries": 60 * n, "reserved_bytes": 10**11} for n in range(20))),
    ),
}
CASES = HEALTHY_RUNS | FAULTS


@cache
def run(name: str) -> Run:
    """The simulated run of a case."""
    return simulate(CASES[name].job)


@cache
def played(name: str, mode: str = "full") -> Played:
    """What is told of a case: in full, without a sampler (bare), or by an old probe."""
    case = CASES[name]
    sampler = case.sampler if mode == "full" else None
    return play(records(run(name), sampler=sampler, told=case.told, old=mode == "old"))
