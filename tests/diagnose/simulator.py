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
from typing import Any, NamedTuple

from torchtop.session.records import PHASES

LATENCY = 6.0
"""From the end of a launch on the host to its start on an idle device."""
MARKER = 3.0
"""Host cost of a marker."""
NEXT = 80.0
"""Host cost of fetching a batch that is ready."""
ENDS = {
    "O0": "pre_optimizer",
    "O1": "optimizer",
    "D0": "other",
    "D1": "data",
    "B0": "forward",
    "BC": "backward",
    "nBC": "backward",
    "B1": "exposed_comm",
    "nB1": "exposed_comm",
}
"""Marker to the phase that ends with it, in the loops that are modelled here."""


@dataclass(frozen=True)
class Loader:
    """A data loader: how long one worker needs for a batch."""

    batch_us: float = 20_000.0
    workers: int = 4
    prefetch: int = 2
    jitter: float = 0.01
    offset_us: float = 0.0
    """When its workers start."""
    next_us: float = NEXT
    """Host cost of fetching a batch that is ready: unpickling and collating, where not in a
    worker."""
    slow_every: int = 0
    """One batch in so many..."""
    slow_us: float = 0.0
    """...takes this much longer, and those behind it wait for it."""
    cpu_part: float = 1.0
    """Part of a batch's time in which a worker computes; else it waits for storage."""


class Pause(NamedTuple):
    """Something that is not training and holds the training thread up."""

    what: str
    """gc, save or eval; empty where nobody knows."""
    us: float
    place: str = "other"


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
    pause: Callable[[int], Pause | None] = lambda step: None
    """A pause of some steps."""
    copy_us: float = 0.0
    """Device time of copying a batch to the device."""
    pageable: bool = False
    """Whether the host waits for that copy, as it does for memory that is not pinned."""
    start_us: float = 0.0
    """When it starts."""


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
    micro_batches: int = 1
    """Batches a step; all but the last under no_sync()."""
    sync: tuple[str, ...] = ()
    """Where the host waits for its device: other, pre_optimizer or forward..."""
    sync_every: int = 1
    """...in one step of so many."""
    queue: int = 1000
    """Launches that fit into the launch queue."""
    host_jitter: float = 0.0
    """Relative noise of a host's launch time, by step."""
    broadcast: bool = False
    """DDP broadcasts rank 0's buffers at the start of forward."""
    reentrant: bool = False
    """The gradients are waited for inside of backward, as with reentrant checkpointing."""
    skipped: Callable[[int], bool] = lambda step: False
    """Steps of which a GradScaler skips the optimizer."""
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
        self.worked_us = 0.0
        if loader.workers:
            for _ in range(loader.workers * loader.prefetch):
                self._issue(loader.offset_us)

    def _cost(self) -> float:
        cost = self._loader.batch_us * max(0.1, 1 + self._rnd.gauss(0, self._loader.jitter))
        if self._loader.slow_every and self._issued % self._loader.slow_every == 0:
            cost += self._loader.slow_us
        self._issued += 1
        self.worked_us += cost
        return cost

    def _issue(self, now: float) -> None:
        worker = self._issued % self._loader.workers
        self._free[worker] = max(self._free[worker], now) + self._cost()
        self._ready.append(self._free[worker])

    def fetch(self, now: float) -> float:
        """When the next batch is in hand."""
        if not self._loader.workers:
            return now + self._cost()
        now = max(now, self._ready.popleft())
        self._issue(now)
        return now + self._loader.next_us

    def depth(self, now: float) -> int | None:
        """How many batches wait."""
        return sum(at <= now for at in self._ready) if self._loader.workers else None


class _Machine:
    """One rank: its host's time, its device's time, and the segments of the step under way."""

    def __init__(self, job: Job, rank: Rank, rnd: random.Random) -> None:
        self.job, self.rank, self.rnd = job, rank, rnd
        self.host = self.device = rank.start_us
        self.busy = self.comm = 0.0
        self.batches = _Batches(rank.loader, rnd)
        self.flight: deque[float] = deque(maxlen=job.queue)
        self.at = (0.0, 0.0)
        self.began = 0.0
        self.step = 0
        self.arrived = 0.0
        self.slower = 1.0
        self.ready: int | None = 0
        self.pauses: list[tuple[int, float, Pause]] = []
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self.gpu_us = dict.fromkeys(PHASES, 0.0)
        self.host_us = dict.fromkeys(PHASES, 0.0)
        self.lag_us: dict[str, float | None] = dict.fromkeys(PHASES)

    def launch(self, device_us: float) -> None:
        self.busy += device_us
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
        """Pass a marker, with which a phase ends."""
        self.host += MARKER
        latency = LATENCY if self.job.cuda else 0.0
        self.device = max(self.device, self.host + latency)
        if not self.job.cuda:
            self.device = self.host
        phase = ENDS[name]
        self.host_us[phase] += self.host - self.at[0]
        self.gpu_us[phase] += self.device - self.at[1]
        self.lag_us[phase] = self.device - self.host
        self.at = (self.host, self.device)

    def stall(self, place: str, extra: dict[str, float]) -> None:
        self.host += self.rank.sleep_us.get(place, 0.0) + extra.get(place, 0.0)
        self.wait(place)

    def wait(self, place: str) -> None:
        """Wait for the device, where the job does so in this step."""
        due = self.step % self.job.sync_every == 0
        if place in self.job.sync and self.job.cuda and due:
            self.host = max(self.host, self.device)

    def rest(self, place: str, step: int) -> None:
        """A pause, if there is one here."""
        pause = self.rank.pause(step)
        if pause is not None and pause.place == place:
            self.pauses.append((step, self.host, pause))
            self.host += pause.us

    def after_sync(self, step: int) -> None:
        """From the last synchronisation to the next batch."""
        extra = self.rank.extra_us(step)
        self.stall("pre_optimizer", extra)
        self.mark("O0")
        self.stall("optimizer", extra)
        if not self.job.skipped(step):
            for _ in range(self.job.optimizer_kernels):
                self.launch(self.rank.optimizer_us)
        self.mark("O1")
        self.stall("other", extra)
        self.rest("other", step)

    def compute(self, step: int, root: _Machine | None, last: bool) -> list[float]:
        """The batch, forward and backward, up to the end of its compute.

        Args:
            step: the step's number.
            root: the rank whose buffers arrive before forward.
            last: whether gradients are synchronised after it.

        Returns:
            When the device has each bucket ready.
        """
        job, rank, extra = self.job, self.rank, self.rank.extra_us(step)
        self.slower = max(0.5, self.rnd.gauss(1.0, job.host_jitter)) if job.host_jitter else 1.0
        self.mark("D0")
        self.ready = self.batches.depth(self.host)
        self.host = self.batches.fetch(self.host)
        self.mark("D1")
        self.arrived = self.device
        if root is not None:
            self.device = max(self.device, root.arrived)
            self.host = self.host if job.cuda else self.device
        self.copy()
        self.rest("forward", step)
        self.host += rank.sleep_us.get("forward", 0.0) + job.compiling.get(step, 0.0)
        for _ in range(job.forward_kernels):
            self.launch(rank.forward_us)
        if extra.get("forward"):
            self.launch(extra["forward"])
        self.wait("forward")
        self.mark("B0")
        ready = []
        for bucket in range(job.buckets):
            if bucket == job.buckets // 2:
                self.host += rank.sleep_us.get("backward", 0.0)
                if extra.get("backward"):
                    self.launch(extra["backward"])
            for _ in range(job.backward_kernels // job.buckets):
                self.launch(rank.backward_us)
            ready.append(self.device)
        if not last:
            self.mark("BC")
            self.mark("B1")
        return ready

    def copy(self) -> None:
        """Copy the batch to the device."""
        if not self.rank.copy_us:
            return
        if self.rank.pageable:
            self.host = max(self.host, self.device) + self.rank.copy_us
            self.device = self.host
        else:
            self.device = max(self.device, self.host + LATENCY) + self.rank.copy_us

    def leave(self, exit_us: float) -> None:
        """The compute stream goes on after the last bucket."""
        self.mark("nBC" if self.job.reentrant else "BC")
        self.busy += max(0.0, exit_us - self.device)  # a kernel that waits for others spins
        self.device = max(self.device, exit_us)
        if not self.job.cuda:
            self.host = max(self.host, exit_us)
        if self.job.reentrant:
            self.mark("nB1")
            for _ in range(self.job.backward_kernels // 4):
                self.launch(self.rank.backward_us)
            self.mark("BC")
        self.mark("B1")


@dataclass
class Run:
    """What a job did: per rank, the rows of its ``steps`` records."""

    job: Job
    rows: list[list[dict[str, Any]]]
    pauses: list[list[tuple[int, float, Pause]]]
    """Per rank: the step, when on its host, and what."""
    worker_percent: list[float]
    """Per rank: CPU of each loader worker; 100 is one core."""

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
    for step in range(job.steps):
        ready = []
        for rank, machine in enumerate(machines):
            machine.step, began = step, machine.at[0]
            if step:
                machine.after_sync(step)
            root = machines[0] if job.broadcast and rank else None
            for _ in range(job.micro_batches - 1):
                machine.compute(step, root, last=False)
            ready.append(machine.compute(step, root, last=True))
            machine.began = began if step else 0.0
        exit_us = _reduce(job, machines, ready)
        for rank, machine in enumerate(machines):
            machine.leave(exit_us)
            rows[rank].append(_row(step, machine))
            machine.begin()
    spans = [(machine.host - machine.rank.start_us) for machine in machines]
    percents = [
        100 * m.rank.loader.cpu_part * m.batches.worked_us / span / max(1, m.rank.loader.workers)
        for m, span in zip(machines, spans, strict=True)
    ]
    return Run(job, rows, [machine.pauses for machine in machines], percents)


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


def _row(step: int, machine: _Machine) -> dict[str, Any]:
    cuda = machine.job.cuda
    row: dict[str, Any] = {}
    for phase in PHASES:
        lag = machine.lag_us[phase]
        row[phase + "_us"] = round(machine.gpu_us[phase])
        row[phase + "_host_us"] = round(machine.host_us[phase])
        row[f"lag_{phase}_us"] = None if lag is None else round(lag) if cuda else 0
    return row | {
        "step": step,
        "end_ns": round(machine.host * 1000),
        "device_us": machine.device,
        "busy_us": machine.busy,
        "host_us": round(machine.host - machine.began),
        "lag_width_us": 20 if cuda else 0,
        "samples": 64 * machine.job.micro_batches,
        "tokens": None,
        "ready": machine.ready,
    }
