"""What the samplers' files have told: GPUs, hosts and processes over the last minute."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from .facts import Stranger
from .rows import integer, number

_LISTING_NS = 5_000_000_000
"""Processes are listed every five seconds."""
_TICKS = 120
_LISTINGS = 24
"""Two minutes, at a tick a second and a listing of processes every five: longer than any window
but that of very slow steps."""


@dataclass
class NodeState:
    """One node's sampler."""

    header: dict[str, Any] = field(default_factory=dict)
    ticks: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_TICKS))
    listings: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_LISTINGS))

    def take(self, record: dict[str, Any]) -> None:
        """Keep a record of ``devices.jsonl``."""
        kind = record.get("kind")
        if kind == "header":
            self.header = record
        elif kind == "tick":
            self.ticks.append(record)
        elif kind == "processes":
            self.listings.append(record)

    @property
    def host(self) -> str:
        """The host's name."""
        return str(self.header.get("host", ""))

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The header's GPUs, in the order of the ticks' columns."""
        return _dicts(self.header.get("gpus"))

    def position(self, uuid: str | None) -> int | None:
        """Where a GPU stands in the columns; None where there is no such GPU."""
        for place, gpu in enumerate(self.gpus):
            if uuid is not None and gpu.get("uuid") == uuid:
                return place
        return None

    def between(self, from_ns: int, to_ns: int) -> list[dict[str, Any]]:
        """The ticks of a time span."""
        return [tick for tick in self.ticks if from_ns <= _at(tick) <= to_ns]

    def worker_percents(self, rank: int, from_ns: int, to_ns: int) -> list[float]:
        """CPU of the loader workers of a rank, in each listing of a time span."""
        found: list[float] = []
        for listing in self.listings:
            if from_ns <= _at(listing) <= to_ns:
                for entry in _dicts(listing.get("ranks")):
                    if integer(entry.get("rank")) == rank:
                        told = (number(w.get("cpu_percent")) for w in _dicts(entry.get("workers")))
                        found += [percent for percent in told if percent is not None]
        return found

    def rank_percents(self, rank: int, from_ns: int, to_ns: int) -> list[float]:
        """CPU of a rank itself, in each listing of a time span."""
        told = [
            number(entry.get("cpu_percent"))
            for listing in self.listings
            if from_ns <= _at(listing) <= to_ns
            for entry in _dicts(listing.get("ranks"))
            if integer(entry.get("rank")) == rank
        ]
        return [percent for percent in told if percent is not None]

    def strangers(self, place: int, from_ns: int, to_ns: int) -> tuple[Stranger, ...]:
        """Processes on a GPU that belong to no rank of this session, at the last listing.

        Returns:
            Nothing also where nothing is known.
        """
        spanned = [e for e in self.listings if from_ns - _LISTING_NS <= _at(e) <= to_ns]
        listing = spanned[-1] if spanned else {}
        lists = listing.get("gpus")
        if not isinstance(lists, list) or place >= len(lists):
            return ()
        ours: set[int | None] = {None}
        for entry in _dicts(listing.get("ranks")):
            ours.add(integer(entry.get("process_pid")))
            ours.update(integer(w.get("process_pid")) for w in _dicts(entry.get("workers")))
        listed = [entry for entries in lists for entry in _dicts(entries)]
        if not {integer(entry.get("process_pid")) for entry in listed} & (ours - {None}):
            return ()  # pids of another namespace name nobody
        return tuple(
            Stranger(pid, _plain(entry.get("name")), integer(entry.get("used_bytes")))
            for entry in _dicts(lists[place])
            if (pid := integer(entry.get("process_pid"))) is not None and pid not in ours
        )

    def has_process(self, pid: int | None, now_ns: int) -> bool:
        """Whether a rank's process was there at the last listing, if that is recent."""
        listing = self.listings[-1] if self.listings else {}
        if pid is None or now_ns - _at(listing) > 2 * _LISTING_NS:
            return False
        return any(integer(e.get("process_pid")) == pid for e in _dicts(listing.get("ranks")))


def _plain(name: Any) -> str:
    """A process's name as text that can stand in a sentence."""
    text = "".join(c for c in str(name or "") if c.isprintable())
    return text.rpartition("/")[2][:24] or "unnamed"


def _at(record: dict[str, Any]) -> int:
    return integer(record.get("mono_ns")) or 0


def gpu_value(tick: dict[str, Any], metric: str, place: int) -> Any:
    """One GPU's value of one metric in a tick; None where missing."""
    gpus = tick.get("gpus")
    column = gpus.get(metric) if isinstance(gpus, dict) else None
    return column[place] if isinstance(column, list) and place < len(column) else None


def gpu_mean(ticks: Iterable[dict[str, Any]], metric: str, place: int) -> float | None:
    """Mean of a metric over ticks; None where it was never there."""
    values = [number(gpu_value(tick, metric, place)) for tick in ticks]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def gpu_parts(ticks: Sequence[dict[str, Any]], metric: str, place: int) -> dict[str, float]:
    """In which part of the ticks that tell it (0..1) a GPU's list of names has each of them."""
    lists = [names for t in ticks if isinstance(names := gpu_value(t, metric, place), list)]
    counts = Counter(str(name) for names in lists for name in set(map(str, names)))
    return {name: count / len(lists) for name, count in counts.items()}


def host_mean(ticks: Iterable[dict[str, Any]], metric: str) -> float | None:
    """Mean of a host metric over ticks; None where it was never there."""
    hosts = (tick.get("host") for tick in ticks)
    values = [number(host.get(metric)) for host in hosts if isinstance(host, dict)]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
