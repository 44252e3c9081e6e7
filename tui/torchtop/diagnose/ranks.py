"""What one rank's file has told so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torchtop.session.alone import is_alone

from . import words
from .rows import integer, number, plain

_TOTALS = 64
_BEATS = 64
"""Half a minute each, at twice a second."""
_MEMORY = 32
"""More than two minutes, at one in five seconds."""
_PAUSES = 512


_COUNTS = (
    *("workers", "prefetch_factor", "batch_size", "batches", "bytes", "samples", "tokens"),
    *("device_bytes", "parameters", "gradient_bytes", "bucket_cap_bytes", "total_steps"),
    *("buffer_bytes", "frames", "graphs", "graph_breaks"),
)
"""What ``facts`` tell as whole numbers."""


class Totals(NamedTuple):
    """One ``totals`` record."""

    mono_ns: int
    from_step: int
    to_step: int
    steps: int
    host_us: float
    samples: float | None
    tokens: float | None


def read_totals(record: dict[str, Any]) -> Totals:
    """A ``totals`` record.

    Raises:
        ValueError: a number that it cannot do without is missing.
    """
    start, end = integer(record.get("from_step")), integer(record.get("to_step"))
    steps, host = integer(record.get("steps")), number(record.get("host_us"))
    if start is None or end is None or steps is None or host is None:
        raise ValueError("a totals record without its numbers")
    mono_ns = integer(record.get("mono_ns")) or 0
    samples, tokens = number(record.get("samples")), number(record.get("tokens"))
    return Totals(mono_ns, start, end, steps, host, samples, tokens)


def mean_fed(totals: Iterable[Totals], name: str) -> float | None:
    """The samples or tokens of a rank's mean step, by its own count; None where that has none.

    Batches differ, and few steps of a fast job are measured: those few say little of the rest.
    """
    told = [each for each in totals if each.steps]
    counts = [getattr(each, name) for each in told]
    if not told or None in counts:
        return None
    return float(sum(counts) / sum(each.steps for each in told))


class Beat(NamedTuple):
    """One ``beat`` record."""

    mono_ns: int
    marker: str | None
    marker_ns: int | None
    step: int | None
    ready: int | None
    loader_at: tuple[int, int, int | None] | None = None
    """Epochs before, batches of this one so far, and of a whole one."""


class Own(NamedTuple):
    """The script's own phases in one ``totals`` record: sums over its measured steps."""

    mono_ns: int
    steps: int
    whole_us: float
    """What the steps took as a whole."""
    sums_us: dict[str, float]


class Pause(NamedTuple):
    """One ``pause`` record: something that is not training held the training thread up."""

    what: str
    step: int | None
    start_ns: int
    duration_us: int


@dataclass
class RankState:
    """One rank in its newest attempt."""

    rank: int
    attempt: int
    source: str
    header: dict[str, Any]
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    loaders: dict[int, dict[str, Any]] = field(default_factory=dict)
    totals: deque[Totals] = field(default_factory=lambda: deque(maxlen=_TOTALS))
    beats: deque[Beat] = field(default_factory=lambda: deque(maxlen=_BEATS))
    scalars: dict[str, float | None] = field(default_factory=dict)
    memory: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    pauses: deque[Pause] = field(default_factory=lambda: deque(maxlen=_PAUSES))
    probe: dict[str, Any] = field(default_factory=dict)
    inspected: dict[str, Any] = field(default_factory=dict)
    """The last ``inspected`` record."""
    own: deque[Own] = field(default_factory=lambda: deque(maxlen=_TOTALS))
    not_finite: dict[str, tuple[int | None, str]] = field(default_factory=dict)
    """Losses that are no numbers any more: since which step, and what they were then."""
    dropped: int = 0
    last_step: int = -1

    @property
    def host(self) -> str:
        """The host's name."""
        return str(self.header.get("host", ""))

    @property
    def cuda(self) -> bool:
        """Whether it computes on a GPU."""
        return self._device().get("type") == "cuda"

    @property
    def gpu_uuid(self) -> str | None:
        """NVML's name of its GPU."""
        uuid = self._device().get("uuid")
        return uuid if isinstance(uuid, str) else None

    @property
    def backend(self) -> str | None:
        """How it communicates with the others: nccl, gloo..."""
        backend = self.header.get("backend")
        return backend if isinstance(backend, str) else None

    def _device(self) -> dict[str, Any]:
        device = self.header.get("device")
        return device if isinstance(device, dict) else {}

    def loader(self) -> dict[str, Any]:
        """The loader that feeds training: the first that is not told to do otherwise."""
        train = [number for number, facts in self.loaders.items() if facts.get("train", True)]
        return self.loaders[min(train)] if train else {}

    def take_facts(self, record: dict[str, Any]) -> None:
        """Keep a ``facts`` record; later ones add to what is known of the same subject."""
        subject = record.get("subject")
        if not isinstance(subject, str):
            return
        if subject == "loader":
            number_of = integer(record.get("loader")) or 0
            self.loaders.setdefault(number_of, {}).update(_sound(record))
        else:
            self.facts.setdefault(subject, {}).update(_sound(record))

    def take_totals(self, record: dict[str, Any]) -> None:
        """Keep a ``totals`` record.

        Raises:
            ValueError: a number that it cannot do without is missing.
        """
        totals = read_totals(record)
        self.last_step = max(self.last_step, totals.to_step - 1)
        self.totals.append(totals)
        measured, told = integer(record.get("phase_steps")), record.get("own_us")
        if measured and isinstance(told, dict):
            known = {str(name): us for name, us in told.items() if number(us) is not None}
            whole_us = totals.host_us * measured / max(1, totals.steps)
            self.own.append(Own(totals.mono_ns, measured, whole_us, known))

    def take_beat(self, record: dict[str, Any]) -> None:
        """Keep a ``beat`` record."""
        marker = record.get("marker")
        self.beats.append(
            Beat(
                integer(record.get("mono_ns")) or 0,
                marker if isinstance(marker, str) else None,
                integer(record.get("marker_ns")),
                integer(record.get("step")),
                integer(record.get("ready")),
                _loader_at(record.get("loader_at")),
            )
        )

    def take_aside(self, record: dict[str, Any]) -> None:
        """Keep a ``memory``, an ``inspected`` or a ``not_finite`` record."""
        if record["kind"] == "memory":
            self.memory.append(record)
        elif record["kind"] == "not_finite":
            name, value = str(record["name"]), str(record["value"])
            self.not_finite.setdefault(name, (integer(record.get("step")), value))
        else:
            self.inspected = record

    def take_pause(self, record: dict[str, Any]) -> None:
        """Keep a ``pause`` record.

        Raises:
            ValueError: a number that it cannot do without is missing.
        """
        start, duration = integer(record.get("start_ns")), integer(record.get("duration_us"))
        if start is None or duration is None:
            raise ValueError("a pause record without its numbers")
        step = integer(record.get("step"))
        self.pauses.append(Pause(str(record.get("what")), step, start, max(0, duration)))

    def retries_since(self, since_ns: int, steps: int) -> tuple[int, float]:
        """How often the allocator has run out of memory since a time, and in how many seconds.

        Args:
            since_ns: the time. What was counted last before it counts as well where there was more
                than one retry a step since then: those cannot all have been before.
            steps: how many the rank has done since then, about.
        """
        counts = [
            (integer(record.get("mono_ns")) or 0, integer(record.get("alloc_retries")))
            for record in self.memory
        ]
        told = [(at, count) for at, count in counts if count is not None]
        known = [(at, count) for at, count in told if at >= since_ns]
        before = [(at, count) for at, count in told if at < since_ns]
        if known and before and known[0][1] - before[-1][1] > steps:
            known.insert(0, before[-1])
        if len(known) < 2:
            return 0, 0.0
        (first_ns, first), (last_ns, last) = known[0], known[-1]
        return max(0, last - first), max(0, last_ns - first_ns) / 1e9

    def take_scalars(self, record: dict[str, Any]) -> dict[str, float | None]:
        """Keep a ``scalars`` record, and return its values."""
        values = record.get("values")
        if not isinstance(values, dict):
            return {}
        known = {str(name): number(value) for name, value in values.items()}
        self.scalars.update(known)
        for name, value in known.items():
            if value is not None:
                self.not_finite.pop(name, None)  # it has recovered
        return known

    def take_probe(self, record: dict[str, Any]) -> None:
        """Keep a ``probe`` record."""
        self.probe = record
        self.dropped = max(self.dropped, integer(record.get("dropped")) or 0)

    def doing(self) -> str | None:
        """What it was last seen at, in words."""
        if not self.beats or self.beats[-1].marker is None:
            return None
        return words.doing_after(self.beats[-1].marker)


def _sound(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts, in which each number is one, or None."""
    sound: dict[str, Any] = {}
    for name, value in facts.items():
        if name in _COUNTS:
            sound[name] = integer(value)
        elif name == "first_batch":
            sound[name] = _sound(value) if isinstance(value, dict) else None
        else:
            sound[name] = plain(value)
    return sound


def _loader_at(value: Any) -> tuple[int, int, int | None] | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    epoch, batch, batches = map(integer, value)
    return None if epoch is None or batch is None else (epoch, batch, batches)


def train_alone(ranks: Mapping[int, RankState]) -> bool:
    """Whether there are several ranks, of which each trains by itself."""
    return len(ranks) > 1 and all(is_alone(state.facts) for state in ranks.values())
