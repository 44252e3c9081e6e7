"""What is known beside the steps, at one moment: loaders, DDP, processes and devices.

Evidence and advice are drawn from these alone. None means not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple


class Stranger(NamedTuple):
    """A process on a GPU of this session that is none of its own."""

    pid: int
    name: str
    used_bytes: int | None


class Utilization(NamedTuple):
    """Of a GPU over some ticks, in percent."""

    mean: float
    error: float
    """Standard error of the mean."""

    @classmethod
    def of(cls, ticks: Sequence[float]) -> Utilization:
        """From its values tick by tick, at least two."""
        return cls(fmean(ticks), stdev(ticks) / sqrt(len(ticks)))


@dataclass(frozen=True)
class GpuFacts:
    """What a rank's GPU did over the window: means over the ticks."""

    index: int | None = None
    name: str = ""
    util_percent: float | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    throttle: Mapping[str, float] = field(default_factory=dict)
    """Part of the ticks (0..1) in which each reason held the clock down."""
    nvlink_links: int | None = None
    nvlink_bytes_per_s: float | None = None
    """What it sends."""
    pcie_rx_bytes_per_s: float | None = None
    memory_used_bytes: tuple[int, ...] = ()
    """Tick by tick."""
    memory_total_bytes: int | None = None
    strangers: tuple[Stranger, ...] = ()


@dataclass(frozen=True)
class RankFacts:
    """One rank."""

    rank: int
    host: str = ""
    loader: Mapping[str, Any] = field(default_factory=dict)
    worker_percent: float | None = None
    """Mean CPU of its loader workers; 100 is one core each."""
    cpu_percent: float | None = None
    """Mean CPU of the rank itself, all threads; 100 is one core."""
    ready: float | None = None
    """Mean number of batches waiting in the loader's queue."""
    queue: int | None = None
    """How many batches the queue holds: workers times prefetch_factor."""
    gpu_uuid: str | None = None
    gpu: GpuFacts = GpuFacts()
    retries: int = 0
    """Times that the allocator ran out of memory and flushed its cache, of late..."""
    retries_s: float = 0.0
    """...in so many seconds."""
    reserved_bytes: int | None = None
    waiting: tuple[str, ...] | None = None
    """Calls of an inspected step that made the host wait for the GPU; None where none was."""

    @property
    def util_percent(self) -> float | None:
        """Utilization of its GPU."""
        return self.gpu.util_percent


@dataclass(frozen=True)
class HostFacts:
    """One host."""

    cores: int | None = None
    cpu_percent: float | None = None
    """0..100 over all cores."""
    ranks: int = 0
    workers: int = 0
    """Loader workers of all ranks on it."""
    disk_read_bytes_per_s: float | None = None
    net_tx_bytes_per_s: float | None = None

    def is_busy(self, percent: float) -> bool:
        """Whether its cores are known to be busy at least this much (0..100)."""
        return self.cpu_percent is not None and self.cpu_percent >= percent

    @property
    def idle_cores(self) -> int | None:
        """Cores that nothing uses at present."""
        if self.cores is None or self.cpu_percent is None:
            return None
        return max(0, round(self.cores * (1 - self.cpu_percent / 100)))


@dataclass(frozen=True)
class Facts:
    """Everything beside the steps."""

    ranks: tuple[RankFacts, ...] = ()
    hosts: Mapping[str, HostFacts] = field(default_factory=dict)
    ddp: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    script: Mapping[str, Any] = field(default_factory=dict)
    precision: Mapping[str, Any] = field(default_factory=dict)
    compiling: Mapping[str, Any] = field(default_factory=dict)
    """The ``facts`` on "compile"."""
    torch: str | None = None
    """PyTorch's version."""
    idlest: Utilization | None = None
    """Of that GPU of a rank which is the least busy in each tick: one that waits for another seems
    busy, and ranks that are all slow take turns at waiting."""
    loader_period_us: Mapping[int, float] = field(default_factory=dict)
    """Step time below which a rank's loader cannot keep up, where that was ever seen."""
    own_phases: Mapping[str, float] = field(default_factory=dict)
    """The script's own phases: their shares (0..1) of a step."""
    alone: bool = False
    """Whether each of several ranks is known to train by itself: without DistributedDataParallel
    or FSDP, and without a collective operation in its steps."""
    host_pace_us: Mapping[int, float] = field(default_factory=dict)
    """Step time below which a rank's host cannot issue its kernels; 0 where that is not known."""

    @property
    def compiled(self) -> bool:
        """Whether the model or the step is known to be compiled."""
        told = self.compiling
        return bool(told.get("model") or told.get("step") or self.script.get("compile"))

    @property
    def graphs(self) -> int:
        """How many graphs have been compiled so far."""
        told = self.compiling.get("graphs")
        return told if isinstance(told, int) else 0

    @property
    def low_precision(self) -> bool:
        """Whether matrix products are known to be computed in 16 bits, or fewer."""
        told = self.precision.get("matmul_dtypes")
        products = {str(dtype) for dtype in told} if isinstance(told, list) else set()
        if products:
            return not products & {"float32", "float64"}
        return bool(self.precision.get("autocast") or self.script.get("amp"))

    @property
    def tf32(self) -> bool:
        """Whether matrix products of float32 are known to use tensor cores."""
        if self.precision.get("float32_matmul_precision") in ("high", "medium"):
            return True
        return self.precision.get("matmul_tf32") is True

    def has_torch(self, major: int, minor: int) -> bool | None:
        """Whether PyTorch is of that version or a later one; None where that is not known."""
        found = re.match(r"(\d{1,4})\.(\d{1,4})", self.torch or "")
        return None if found is None else (int(found[1]), int(found[2])) >= (major, minor)

    def of(self, rank: int | None) -> RankFacts:
        """Facts of one rank (of the first for None); empty ones where it is not known."""
        for facts in self.ranks:
            if facts.rank == (rank or 0):
                return facts
        return RankFacts(rank or 0)

    def host_of(self, rank: int | None) -> HostFacts:
        """Facts of the host of a rank."""
        return self.hosts.get(self.of(rank).host, HostFacts())

    def least_busy(self, rank: int | None = None) -> RankFacts | None:
        """The rank whose GPU is the least busy (or that rank); None where none tells."""
        known = [r for r in self.ranks if r.util_percent is not None and rank in (None, r.rank)]
        return min(known, key=lambda r: r.util_percent or 0.0, default=None)
