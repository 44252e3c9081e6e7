"""CPU, memory, disk and network of this host."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

T = TypeVar("T")

_SHORTEST_S = 0.05
"""Counters tick at 100 Hz: over less than a few ticks a rate is noise."""


@dataclass(frozen=True)
class HostCounters:
    """Cumulative counters at one moment; None for those that cannot be read.

    Attributes:
        at_s: monotonic time, seconds.
        cores: (busy, total) CPU seconds of each core.
        disk: bytes (read, written) by physical disks.
        network: bytes (received, sent) by network cards.
    """

    at_s: float
    cores: tuple[tuple[float, float], ...] | None
    disk: tuple[int, int] | None
    network: tuple[int, int] | None


def read_counters() -> HostCounters:
    """The counters now."""
    return HostCounters(
        at_s=time.monotonic(), cores=_ask(_cores), disk=_ask(_disk), network=_ask(_network)
    )


def rates(before: HostCounters | None, after: HostCounters) -> dict[str, Any]:
    """CPU percents and byte rates between two readings.

    Returns:
        The fields of ``host`` in a ``tick`` record that are rates; None where either reading
        lacks the counter, or a counter went back.
    """
    cpu_percent, per_core = _cpu(before.cores if before else None, after.cores)
    elapsed_s = after.at_s - before.at_s if before else 0.0
    disk = _pair_rate(before.disk if before else None, after.disk, elapsed_s)
    network = _pair_rate(before.network if before else None, after.network, elapsed_s)
    return {
        "cpu_percent": cpu_percent,
        "cpu_percent_per_core": per_core,
        "disk_read_bytes_per_s": disk[0],
        "disk_write_bytes_per_s": disk[1],
        "net_rx_bytes_per_s": network[0],
        "net_tx_bytes_per_s": network[1],
    }


class HostSampler:
    """The ``host`` part of a ``tick`` record: what happened since the last sample."""

    def __init__(self) -> None:
        self._before: HostCounters | None = None

    def sample(self) -> dict[str, Any]:
        """The host's metrics; None for those that cannot be read, or need two samples."""
        after = read_counters()
        before, self._before = self._before, after
        return {
            **rates(before, after),
            "load_1m": _ask(lambda: round(os.getloadavg()[0], 2)),
            "memory_used_bytes": _ask(_memory_used),
        }


def memory_total_bytes() -> int | None:
    """Main memory of this host."""
    return _ask(lambda: int(psutil.virtual_memory().total))


def _ask(call: Callable[[], T]) -> T | None:
    """The answer, or None: nothing that /proc holds or lacks may end the sampler."""
    try:
        return call()
    except Exception:
        return None


def _memory_used() -> int:
    memory = psutil.virtual_memory()
    # "Used" of the kernel's table leaves out what cannot be reclaimed.
    return int(memory.total - memory.available)


def _cores() -> tuple[tuple[float, float], ...]:
    return tuple(_busy_and_total(times) for times in psutil.cpu_times(percpu=True))


def _busy_and_total(times: Any) -> tuple[float, float]:
    # Time of guests is part of user and nice time already.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    total = sum(times) - guests
    return total - times.idle - getattr(times, "iowait", 0.0), total


def _cpu(
    before: tuple[tuple[float, float], ...] | None, after: tuple[tuple[float, float], ...] | None
) -> tuple[float | None, list[float | None] | None]:
    if before is None or after is None or len(before) != len(after):
        return None, None  # the first sample, or a core came or went
    pairs = list(zip(before, after, strict=True))
    busy = sum(new[0] - old[0] for old, new in pairs)
    total = sum(new[1] - old[1] for old, new in pairs)
    per_core = [_percent(new[0] - old[0], new[1] - old[1]) for old, new in pairs]
    return _percent(busy, total), per_core


def _percent(busy: float, total: float) -> float | None:
    # The kernel's idle times can step back a little.
    return round(min(100.0, max(0.0, 100 * busy / total)), 1) if total > 0 else None


def _pair_rate(
    before: tuple[int, int] | None, after: tuple[int, int] | None, elapsed_s: float
) -> tuple[float | None, float | None]:
    if before is None or after is None or elapsed_s < _SHORTEST_S:
        return None, None
    first, second = (
        float(round((new - old) / elapsed_s)) if new >= old else None
        for old, new in zip(before, after, strict=True)
    )
    return first, second


def _disk() -> tuple[int, int]:
    counters = psutil.disk_io_counters(perdisk=True)
    # Partitions, and what lies on other disks (LVM, RAID, loop), would count the same bytes twice.
    disks = [counters[name] for name in _physical(counters, Path("/sys/block"))]
    return sum(disk.read_bytes for disk in disks), sum(disk.write_bytes for disk in disks)


def _network() -> tuple[int, int]:
    counters = psutil.net_io_counters(pernic=True)
    # Bridges and bonds would count twice, and loopback is no network. In a container the only
    # card is a virtual one.
    names = _physical(counters, Path("/sys/class/net")) or [n for n in counters if n != "lo"]
    cards = [counters[name] for name in names]
    return sum(card.bytes_recv for card in cards), sum(card.bytes_sent for card in cards)


def _physical(names: Iterable[str], folder: Path) -> list[str]:
    """The names that stand for a device and not for something made of others."""
    root = str(folder)
    return [name for name in names if os.path.exists(f"{root}/{name}/device")]  # noqa: PTH110
