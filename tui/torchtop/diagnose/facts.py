"""What is known beside the steps, at one moment: loaders, DDP, processes and devices.

Evidence and advice are drawn from these alone. None means not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RankFacts:
    """One rank."""

    rank: int
    host: str = ""
    loader: Mapping[str, Any] = field(default_factory=dict)
    worker_percent: float | None = None
    """Mean CPU of its loader workers; 100 is one core each."""
    ready: float | None = None
    """Mean number of batches waiting in the loader's queue."""
    queue: int | None = None
    """How many batches the queue holds: workers times prefetch_factor."""
    util_percent: float | None = None
    sm_active: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    gpu_index: int | None = None
    strangers: int = 0
    """Processes on its GPU that are not part of this session."""


@dataclass(frozen=True)
class HostFacts:
    """One host."""

    cores: int | None = None
    cpu_percent: float | None = None
    """0..100 over all cores."""
    ranks: int = 0
    workers: int = 0
    """Loader workers of all ranks on it."""

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
    loader_period_us: Mapping[int, float] = field(default_factory=dict)
    """Step time below which a rank's loader cannot keep up, where that was ever seen."""

    def of(self, rank: int | None) -> RankFacts:
        """Facts of one rank (of the first for None); empty ones where it is not known."""
        for facts in self.ranks:
            if facts.rank == (rank or 0):
                return facts
        return RankFacts(rank or 0)

    def host_of(self, rank: int | None) -> HostFacts:
        """Facts of the host of a rank."""
        return self.hosts.get(self.of(rank).host, HostFacts())
