"""What a session's report shows over time, read once from the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torchtop.export.source import RankFile, Source
from torchtop.htmlreport.series import Series
from torchtop.session.folds import DEVICE_METRICS
from torchtop.session.launches import last_launch, launch_of
from torchtop.session.records import PHASES, Record, bucket_microseconds
from torchtop.session.values import child, children, items, number

_GAP_S = 120
"""As for the screen: with more between two analyses something is missing."""

_SCALARS = 4
"""Scalars that are drawn; a script may log hundreds."""


@dataclass(frozen=True)
class Stretch:
    """For how long a verdict stood, in seconds since the start."""

    kind: str
    severity: str
    start_s: float
    end_s: float


@dataclass
class Gathered:
    """A session over time.

    Attributes:
        length_s: from the start to the last record.
        rates: samples, tokens or steps a second, by unit.
        latency: every step's milliseconds, as far as they were kept for drawing.
        phases: the frontier's milliseconds a step, by phase.
        gpus: by the GPU's name, its metrics.
        cpu: the hosts' CPU per cent, by host.
        scalars: of the first rank that logs: (step, value), by name.
        latencies: (milliseconds, steps) of the whole run's histogram.
        verdicts: what was told, in order of time.
    """

    length_s: float
    rates: dict[str, Series] = field(default_factory=dict)
    latency: Series | None = None
    phases: dict[str, Series] = field(default_factory=dict)
    gpus: dict[str, dict[str, Series]] = field(default_factory=dict)
    cpu: dict[str, Series] = field(default_factory=dict)
    scalars: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    latencies: list[tuple[float, int]] = field(default_factory=list)
    verdicts: list[Stretch] = field(default_factory=list)


def gather(source: Source) -> Gathered:
    """Read what the plots show."""
    gathered = Gathered(_length_s(source))
    _analyses(source, gathered)
    _devices(source, gathered)
    for rank in source.ranks():
        if not gathered.scalars:
            _scalars(source, rank, gathered)
    _latencies(source, gathered)
    return gathered


def _length_s(source: Source) -> float:
    return max(1.0, (source.end_ns - source.start_ns) / 1e9)


def _analyses(source: Source, into: Gathered) -> None:
    into.latency = Series(into.length_s)
    for record in _of_last_launch(source.analyses(), source):
        at_s = (source.unix_ns(record.get("mono_ns")) - source.start_ns) / 1e9
        for unit, value in child(record, "throughput").items():
            _add(into.rates, unit, into.length_s, at_s, value)
        for phase in PHASES:
            ms = child(child(record, "phases"), phase).get("ms")
            _add(into.phases, phase, into.length_s, at_s, ms)
        latencies = (number(value) for value in items(record, "recent_step_ms"))
        into.latency.add(at_s, *(value for value in latencies if value is not None))
        _judge(into, at_s, child(record, "verdict"), bool(record.get("warming_up")))


def _of_last_launch(records: Iterable[Record], source: Source) -> Iterator[Record]:
    launch = last_launch(rank.header for rank in source.ranks())
    return (record for record in records if launch_of(record) >= launch)


def _add(series: dict[str, Series], name: str, length_s: float, at_s: float, value: Any) -> None:
    known = number(value)
    if known is not None:
        series.setdefault(name, Series(length_s)).add(at_s, known)


def _judge(into: Gathered, at_s: float, verdict: Mapping[str, Any], warming_up: bool) -> None:
    """Make the last verdict longer, or begin another one."""
    kind, severity = str(verdict.get("kind")), str(verdict.get("severity"))
    if not verdict or warming_up:
        return
    last = into.verdicts[-1] if into.verdicts else None
    goes_on = last is not None and at_s - last.end_s < _GAP_S
    if last and goes_on and last.kind == kind:
        into.verdicts[-1] = Stretch(kind, severity, last.start_s, at_s)
        return
    start_s = max(0.0, at_s - 1)
    if last and goes_on:  # of old analyses only the first with another verdict is there for sure
        into.verdicts[-1] = replace(last, end_s=max(last.end_s, start_s))
    into.verdicts.append(Stretch(kind, severity, start_s, at_s))


def _devices(source: Source, into: Gathered) -> None:
    several = len(source.paths.nodes()) > 1
    used = {rank.get("gpu_uuid") for rank in children(source.loaded.summary, "ranks")} - {None}
    for host, path, facts in source.samplers():
        shown = {
            place: f"GPU {fact.get('index', place)}" + (f" on {host}" if several else "")
            for place, fact in enumerate(facts)
            if not used or fact.get("uuid") in used
        }
        for record in source.records(path, host, "tick"):
            at_s = (source.unix_ns(record.get("mono_ns"), host) - source.start_ns) / 1e9
            _tick(into, record, at_s, shown)
            cpu = child(record, "host").get("cpu_percent")
            _add(into.cpu, host, into.length_s, at_s, cpu)


def _tick(into: Gathered, record: Record, at_s: float, shown: Mapping[int, str]) -> None:
    metrics = child(record, "gpus")
    for place, name in shown.items():
        gpu = into.gpus.setdefault(name, {})
        for metric in DEVICE_METRICS:
            column = items(metrics, metric)
            if place < len(column):
                _add(gpu, metric, into.length_s, at_s, column[place])


def _scalars(source: Source, rank: RankFile, into: Gathered) -> None:
    for name, step, value in _logged(source, rank):
        if name in into.scalars or len(into.scalars) < _SCALARS:
            into.scalars.setdefault(name, []).append((step, value))


def _logged(source: Source, rank: RankFile) -> Iterator[tuple[str, int, float]]:
    for record in source.records(rank.path, rank.host, "scalars"):
        step = record.get("step")
        if isinstance(step, int):
            for name, value in child(record, "values").items():
                known = number(value)
                if known is not None:
                    yield str(name), step, known


def _latencies(source: Source, into: Gathered) -> None:
    """The histogram of the run's step latencies, warm-up left out."""
    counts: dict[int, int] = {}
    minutes = source.records(source.paths.history, None, "minute")
    for record in _of_last_launch(minutes, source):
        for bucket, count in child(record, "latency").items():
            known = number(count)
            if known is not None and str(bucket).lstrip("-").isdigit():
                counts[int(bucket)] = counts.get(int(bucket), 0) + int(known)
    into.latencies = [
        (bucket_microseconds(b) / 1e3, n) for b, n in sorted(counts.items()) if 0 <= b < 3000
    ]
