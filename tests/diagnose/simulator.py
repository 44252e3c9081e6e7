"""A discrete-event model of DDP ranks, with the exact truth.

Each rank has a host thread that issues kernels into a bounded launch queue (back-pressure), a
compute stream that executes them in order, and a data loader with workers and prefetching. Ranks
meet in the gradient buckets of backward. Times are microseconds.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

LATENCY = 6.0
"""From the end of a launch on the host to its start on an idle device."""
MARKER = 3.0
"""Host cost of a marker."""
NEXT = 80.0
"""Host cost of fetching a batch that is ready."""


@dataclass(frozen=True)
class Loader:
    """A data loader: how long one worker needs for a batch."""

    batch_us: float = 20_000.0
    workers: int = 4
    prefetch: int = 2
    jitter: float = 0.01
    offset_us: float = 0.0
    """When its workers start."""


@dataclass(frozen=True)
class Rank:
    """What one rank does in a step."""

    forward_us: float = 200.0
    """Device time of one kernel."""
    backward_us: float = 200.0
    optimizer_us: float = 200.0
    launch_us: float = 20.0
    """Host time of one launch."""
    sleep_us: dict[str, float] = field(default_factory=dict)
    """Host stalls by place: pre_optimizer, optimizer, other, forward or backward."""
    loader: Loader = Loader()
    extra_us: Callable[[int], dict[str, float]] = lambda step: {}
    """Device time added in forward or backward, or host time elsewhere, by step."""


@dataclass(frozen=True)
class Job:
    """A run of `ranks` over `steps` steps."""

    ranks: tuple[Rank, ...]
    steps: int = 120
    cuda: bool = True
    forward_kernels: int = 60
    backward_kernels: int = 120
    optimizer_kernels: int = 10
    buckets: int = 6
    bucket_us: float = 300.0
    item_sync: bool = False
    """loss.item() at the end of each step."""
    queue: int = 1000
    """Launches that fit into the launch queue."""
    host_jitter: float = 0.0
    """Relative noise of a host's launch time, by step."""
    broadcast: bool = False
    """DDP broadcasts rank 0's buffers at the start of forward."""
    host_columns: bool = False
    """Whether the probe tells the host time of each phase."""
    compiling: dict[int, float] = field(default_factory=dict)
    """Extra host time in the forward of some steps."""
    seed: int = 0

    def with_rank(self, rank: int, **changes: Any) -> Job:
        """The same job with one rank changed."""
        ranks = list(self.ranks)
        ranks[rank] = replace(ranks[rank], **changes)
        return replace(self, ranks=tuple(ranks))

    def with_all(self, **changes: Any) -> Job:
        """The same job with all ranks changed."""
        return replace(self, ranks=tuple(replace(rank, **changes) for rank in self.ranks))


class _Batches:
    """The batches of one loader: when each is ready."""

    def __init__(self, loader: Loader, rnd: random.Random) -> None:
        self._loader, self._rnd = loader, rnd
        self._free = [loader.offset_us] * max(1, loader.workers)
        self._ready: deque[float] = deque()
        self._issued = 0
        if loader.workers:
            for _ in range(loader.workers * loader.prefetch):
                self._issue(loader.offset_us)

    def _cost(self) -> float:
        return self._loader.batch_us * max(0.1, 1 + self._rnd.gauss(0, self._loader.jitter))

    def _issue(self, now: float) -> None:
        worker = self._issued % self._loader.workers
        self._issued += 1
        self._free[worker] = max(self._free[worker], now) + self._cost()
        self._ready.append(self._free[worker])

    def fetch(self, now: float) -> float:
        """When the next batch is in hand."""
        if not self._loader.workers:
            return now + self._cost()
        now = max(now, self._ready.popleft())
        self._issue(now)
        return now + NEXT

    def depth(self, now: float) -> int | None:
        """How many batches wait."""
        return sum(at <= now for at in self._ready) if self._loader.workers else None


class _Machine:
    """One rank: its host's time, its device's time, and the markers of the step under way."""

    def __init__(self, job: Job, rank: Rank, rnd: random.Random) -> None:
        self.job, self.rank = job, rank
        self.host = self.device = self.comm = 0.0
        self.batches = _Batches(rank.loader, rnd)
        self.flight: deque[float] = deque(maxlen=job.queue)
        self.marks: dict[str, tuple[float, float]] = {}
        self.slower = 1.0
        self.rnd = rnd
        self.ready: int | None = 0

    def launch(self, device_us: float) -> None:
        if not self.job.cuda:
            self.host += max(device_us, self.rank.launch_us)
            self.device = self.host
            return
        if len(self.flight) == self.job.queue:
            self.host = max(self.host, self.flight[0])
        self.host += self.slower * self.rank.launch_us
        self.device = max(self.device, self.host + LATENCY) + device_us
        self.flight.append(self.device)

    def mark(self, name: str) -> None:
        self.host += MARKER
        latency = LATENCY if self.job.cuda else 0.0
        self.device = max(self.device, self.host + latency)
        if not self.job.cuda:
            self.device = self.host
        self.marks[name] = (self.host, self.device)

    def stall(self, place: str, extra: dict[str, float]) -> None:
        self.host += self.rank.sleep_us.get(place, 0.0) + extra.get(place, 0.0)

    def after_sync(self, step: int) -> None:
        """From the last synchronisation to the next batch."""
        extra = self.rank.extra_us(step)
        self.stall("pre_optimizer", extra)
        self.mark("O0")
        self.stall("optimizer", extra)
        for _ in range(self.job.optimizer_kernels):
            self.launch(self.rank.optimizer_us)
        self.mark("O1")
        if self.job.item_sync:
            self.host = max(self.host, self.device)
        self.stall("other", extra)

    def compute(self, step: int, root: _Machine | None) -> list[float]:
        """The batch, forward and backward.

        Args:
            step: the step's number.
            root: the rank whose buffers arrive before forward.

        Returns:
            When the device has each bucket ready.
        """
        job, rank, extra = self.job, self.rank, self.rank.extra_us(step)
        self.slower = max(0.5, self.rnd.gauss(1.0, job.host_jitter)) if job.host_jitter else 1.0
        self.mark("D0")
        self.ready = self.batches.depth(self.host)
        self.host = self.batches.fetch(self.host)
        self.mark("D1")
        if root is not None:
            self.device = max(self.device, root.marks["D1"][1])
            self.host = self.host if job.cuda else self.device
        self.stall("forward", {})
        self.host += job.compiling.get(step, 0.0)
        for _ in range(job.forward_kernels):
            self.launch(rank.forward_us)
        if extra.get("forward"):
            self.launch(extra["forward"])
        self.mark("B0")
        ready = []
        for bucket in range(job.buckets):
            if bucket == job.buckets // 2:
                self.stall("backward", {})
                if extra.get("backward"):
                    self.launch(extra["backward"])
            for _ in range(job.backward_kernels // job.buckets):
                self.launch(rank.backward_us)
            ready.append(self.device)
        self.mark("BC")
        return ready

    def leave(self, exit_us: float) -> None:
        """The compute stream goes on after the last bucket."""
        self.device = max(self.device, exit_us)
        if not self.job.cuda:
            self.host = max(self.host, exit_us)
        self.mark("B1")


@dataclass
class Run:
    """What a job did: per rank, the rows of its ``steps`` records."""

    job: Job
    rows: list[list[dict[str, Any]]]

    def step_us(self, first: int = 20) -> float:
        """The true mean step time from a step on."""
        ends = [row["device_us"] for row in self.rows[0]]
        return (ends[-1] - ends[first - 1]) / (len(ends) - first)

    def mean_us(self, rank: int, phase: str, first: int = 20) -> float:
        """The mean of a phase on a rank."""
        return fmean(row[phase + "_us"] for row in self.rows[rank][first:])


def simulate(job: Job) -> Run:
    """Run a job."""
    rnd = random.Random(job.seed)
    machines = [_Machine(job, rank, rnd) for rank in job.ranks]
    rows: list[list[dict[str, Any]]] = [[] for _ in machines]
    before: list[dict[str, tuple[float, float]]] = [{} for _ in machines]
    for step in range(job.steps):
        ready = []
        for rank, machine in enumerate(machines):
            if step:
                machine.after_sync(step)
            ready.append(machine.compute(step, machines[0] if job.broadcast and rank else None))
        exit_us = _reduce(job, machines, ready)
        for rank, machine in enumerate(machines):
            machine.leave(exit_us)
            rows[rank].append(_row(step, machine, before[rank].get("B1", (0.0, 0.0))))
            before[rank] = dict(machine.marks)
    return Run(job, rows)


def _reduce(job: Job, machines: list[_Machine], ready: list[list[float]]) -> float:
    """When the last bucket is reduced: each starts when all ranks have it, one at a time."""
    if len(machines) == 1:
        return machines[0].device
    end = machines[0].comm
    for bucket in range(job.buckets):
        end = max(end, *(times[bucket] for times in ready)) + job.bucket_us
    for machine in machines:
        machine.comm = end
    return end


def _row(step: int, machine: _Machine, start: tuple[float, float]) -> dict[str, Any]:
    marks = machine.marks

    def device(a: str, b: str) -> float:
        return marks[b][1] - marks[a][1]

    first = step == 0
    spans = {
        "pre_optimizer": 0.0 if first else marks["O0"][1] - start[1],
        "optimizer": 0.0 if first else device("O0", "O1"),
        "other": marks["D0"][1] if first else device("O1", "D0"),
        "data": device("D0", "D1"),
        "forward": device("D1", "B0"),
        "backward": device("B0", "BC"),
        "exposed_comm": device("BC", "B1"),
    }
    cuda = machine.job.cuda
    row: dict[str, Any] = {phase + "_us": round(value) for phase, value in spans.items()}
    if machine.job.host_columns and not first:
        row |= _host_columns(marks, start[0])
    return row | {
        "step": step,
        "end_ns": round(marks["B1"][0] * 1000),
        "device_us": marks["B1"][1],
        "host_us": round(marks["B1"][0] - start[0]),
        "data_host_us": round(marks["D1"][0] - marks["D0"][0]),
        "lag_forward_us": round(marks["B0"][1] - marks["B0"][0]) if cuda else 0,
        "lag_backward_us": round(marks["BC"][1] - marks["BC"][0]) if cuda else 0,
        "lag_width_us": 20 if cuda else 0,
        "samples": 64,
        "tokens": None,
        "ready": machine.ready,
    }


def _host_columns(marks: dict[str, tuple[float, float]], start: float) -> dict[str, int]:
    at = {name: mark[0] for name, mark in marks.items()} | {"start": start}
    spans = {
        "pre_optimizer": ("start", "O0"),
        "optimizer": ("O0", "O1"),
        "other": ("O1", "D0"),
        "forward": ("D1", "B0"),
        "backward": ("B0", "BC"),
    }
    return {phase + "_host_us": round(at[b] - at[a]) for phase, (a, b) in spans.items()}
