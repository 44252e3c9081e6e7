"""A session as a Chrome trace, which https://ui.perfetto.dev and chrome://tracing open.

JSON in the "Trace Event Format" of the Chromium project. Each rank is a process with the device's
phases, the host's, its pauses, and the verdicts that name it; the job has the verdicts of all, and
counters; each GPU and host has the counters of its sampler. Times are microseconds since the start.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from torchtop.export.source import RankFile, Source
from torchtop.export.timeline import Step, Timeline
from torchtop.session.records import Record, finite
from torchtop.session.values import child, children, items, number

Event = dict[str, Any]
_Key = tuple[bool, str, str, str]
"""Of a verdict: whether it stands beside another one (a finding), its kind, rank and phase."""

_JOB, _FIRST_RANK, _FIRST_DEVICE = 1, 1000, 1_000_000
_STEPS, _HOST_STEPS, _PAUSES, _JUDGED = 1, 2, 3, 4
"""Processes and tracks by number."""

_GPU_COUNTERS = {
    "utilization, %": ("util_percent", 1.0),
    "SM active, %": ("sm_active", 100.0),
    "tensor active, %": ("tensor_active", 100.0),
    "memory used, GiB": ("memory_used_bytes", 1 / 2**30),
    "power, W": ("power_w", 1.0),
    "temperature, C": ("temperature_c", 1.0),
    "SM clock, MHz": ("sm_clock_mhz", 1.0),
    "NVLink sent, GB/s": ("nvlink_tx_bytes_per_s", 1e-9),
    "NVLink received, GB/s": ("nvlink_rx_bytes_per_s", 1e-9),
    "PCIe sent, GB/s": ("pcie_tx_bytes_per_s", 1e-9),
    "PCIe received, GB/s": ("pcie_rx_bytes_per_s", 1e-9),
}
_HOST_COUNTERS = {
    "CPU, %": ("cpu_percent", 1.0),
    "memory used, GiB": ("memory_used_bytes", 1 / 2**30),
    "disk read, MB/s": ("disk_read_bytes_per_s", 1e-6),
    "disk written, MB/s": ("disk_write_bytes_per_s", 1e-6),
}
"""A counter's name to the metric and the factor to its unit."""

_UNTIL_NEXT_NS = 1_000_000_000
"""A verdict holds until the next analysis, a second later."""


def write_trace(source: Source, path: Path) -> None:
    """Write the trace, compressed where the name ends in ``.gz``.

    Raises:
        OSError: it cannot be written.
    """
    told = source.loaded.summary
    about = {"session": source.paths.id, "workload": told.get("workload"), "tool": "torchtop"}
    with _opened(path) as file:
        file.write('{"displayTimeUnit":"ms","otherData":')
        file.write(json.dumps({**about, "start_unix_s": source.start_ns / 1e9}))
        file.write(',"traceEvents":[\n')
        _write_events(events(source), file)
        file.write("\n]}\n")


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="ascii")
    return path.open("w", encoding="ascii")


def _write_events(found: Iterator[Event], file: TextIO) -> None:
    for place, event in enumerate(found):
        file.write(",\n" if place else "")
        file.write(json.dumps(finite(event), separators=(",", ":"), allow_nan=False))


def events(source: Source) -> Iterator[Event]:
    """All events; those of one track are in order of time."""
    yield from _job(source)
    for rank in source.ranks():
        yield from _rank(source, rank)
    process = _FIRST_DEVICE
    for host, path, facts in source.samplers():
        for place, fact in enumerate(facts):
            name = f"GPU {fact.get('index', place)} {fact.get('name', '')} on {host}"
            yield from _process(process + place, name)
        yield from _process(process + len(facts), f"host {host}")
        yield from _device_counters(source, host, path, process, len(facts))
        process += len(facts) + 1


def _process(process: int, name: str, tracks: Mapping[int, str] | None = None) -> Iterator[Event]:
    """The names of a process and its tracks; they are shown in the order of their numbers."""
    yield _metadata("process_name", process, 0, name=_text(name))
    yield _metadata("process_sort_index", process, 0, sort_index=process)
    for track, told in (tracks or {}).items():
        yield _metadata("thread_name", process, track, name=told)
        yield _metadata("thread_sort_index", process, track, sort_index=track)


def _metadata(what: str, process: int, thread: int, **arguments: Any) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "ts": 0, "args": arguments}


def _slice(
    name: str, category: str, process: int, thread: int, start_ns: int, length_ns: int, **told: Any
) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": thread,
        "ts": start_ns / 1000,
        "dur": length_ns / 1000,
        "args": {key: value for key, value in told.items() if value is not None},
    }


def _counter(name: str, process: int, at_ns: int, value: float | None) -> Iterator[Event]:
    """A counter's value; where it is not known there is none, and not 0."""
    if value is not None:
        told = {"value": round(value, 4)}
        yield {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": at_ns / 1e3, "args": told}


def _job(source: Source) -> Iterator[Event]:
    """Verdicts, findings and rates of the whole job, and each rank's own verdicts."""
    yield from _process(_JOB, "job", {_JUDGED: "verdict"})
    yield from _judged(source)
    for record in source.analyses():
        at_ns = source.unix_ns(record.get("mono_ns")) - source.start_ns
        speed, step = child(record, "throughput"), child(record, "step_ms")
        for name in ("samples_per_s", "tokens_per_s"):
            title = name.replace("_per_s", "/s")
            yield from _counter(title, _JOB, at_ns, number(speed.get(name)))
        for name in ("p50", "p95"):
            yield from _counter(f"step {name}, ms", _JOB, at_ns, number(step.get(name)))


def _judged(source: Source) -> Iterator[Event]:
    """For how long each verdict and each finding stood; those that name a rank on its track too.

    Several findings may stand at a time, so that each has a track of its own.
    """
    standing: dict[_Key, tuple[int, Mapping[str, Any]]] = {}
    tracks: dict[_Key, int] = {}
    at_ns = 0
    for record in source.analyses():
        at_ns = source.unix_ns(record.get("mono_ns")) - source.start_ns
        seen = dict(_told(record))
        for key in [key for key in standing if key not in seen]:
            yield from _stretch(key, tracks, *standing.pop(key), at_ns)
        for key, verdict in seen.items():
            standing[key] = (standing[key][0] if key in standing else at_ns, verdict)
    for key, (start_ns, verdict) in standing.items():
        yield from _stretch(key, tracks, start_ns, verdict, at_ns + _UNTIL_NEXT_NS)


def _told(record: Record) -> Iterator[tuple[_Key, Mapping[str, Any]]]:
    """The verdict and the findings of an analysis, each with what makes it the same as before."""
    judged = child(record, "verdict")
    for beside, told in ((False, [judged] if judged else []), (True, children(record, "findings"))):
        for verdict in told:
            kind, rank, phase = (str(verdict.get(name)) for name in ("kind", "rank", "phase"))
            yield (beside, kind, rank, phase), verdict


def _stretch(
    key: _Key, tracks: dict[_Key, int], start_ns: int, verdict: Mapping[str, Any], end_ns: int
) -> Iterator[Event]:
    track = _JUDGED
    if key[0]:
        track = tracks.setdefault(key, _JUDGED + 1 + len(tracks))
        if track == _JUDGED + len(tracks):
            yield _metadata("thread_name", _JOB, track, name=f"beside it: {_text(key[1])}")
    drawn = _slice(
        _text(verdict.get("kind")),
        "verdict",
        _JOB,
        track,
        start_ns,
        end_ns - start_ns,
        **{name: verdict.get(name) for name in ("severity", "share", "rank", "gain_bound")},
        phase=_text(verdict.get("phase") or ""),
        headline=_text(verdict.get("headline") or ""),
        evidence=_text("; ".join(map(str, items(verdict, "evidence")))),
        advice=_text("; ".join(map(str, items(verdict, "advice")))),
    )
    yield drawn
    rank = verdict.get("rank")
    if not key[0] and isinstance(rank, int):
        yield {**drawn, "pid": _FIRST_RANK + rank}


def _rank(source: Source, rank: RankFile) -> Iterator[Event]:
    process = _FIRST_RANK + rank.rank
    tracks = {
        _STEPS: "phases on the device",
        _HOST_STEPS: "phases on the host",
        _PAUSES: "pauses",
        _JUDGED: "verdict",
    }
    yield from _process(process, f"rank {rank.rank}: {rank.device} on {rank.host}", tracks)
    for track, suffix in ((_STEPS, "_us"), (_HOST_STEPS, "_host_us")):
        timeline = Timeline(suffix, many=number(rank.header.get("world_size")) != 1)
        for record in source.records(rank.path, rank.host, "steps"):
            for step in timeline.add(record):
                yield from _step(source, rank, track, step)
    for record in source.records(rank.path, rank.host, "pause"):
        start = record.get("start_ns")
        if number(start) is not None:
            length_ns = round((number(record.get("duration_us")) or 0.0) * 1000)
            at_ns = source.unix_ns(start, rank.host) - source.start_ns
            what = _text(record.get("what"))
            yield _slice(what, "pause", process, _PAUSES, at_ns, length_ns, step=record.get("step"))


def _step(source: Source, rank: RankFile, track: int, step: Step) -> Iterator[Event]:
    """A step, and its phases within it."""
    process, zero = _FIRST_RANK + rank.rank, source.start_ns
    start = source.unix_ns(step.start_ns, rank.host) - zero
    told = {"step": step.number, "samples": step.samples}
    name = f"step {step.number}"
    yield _slice(name, "step", process, track, start, step.length_ns, **told)
    for piece in step.pieces:
        if piece.length_ns:
            at_ns = source.unix_ns(piece.start_ns, rank.host) - zero
            yield _slice(piece.phase, "phase", process, track, at_ns, piece.length_ns)


def _device_counters(
    source: Source, host: str, path: Path, process: int, gpus: int
) -> Iterator[Event]:
    for record in source.records(path, host, "tick"):
        at_ns = source.unix_ns(record.get("mono_ns"), host) - source.start_ns
        metrics, told = child(record, "gpus"), child(record, "host")
        for title, (name, factor) in _GPU_COUNTERS.items():
            for place, value in enumerate(items(metrics, name)[:gpus]):
                yield from _counter(title, process + place, at_ns, _scaled(value, factor))
        for title, (name, factor) in _HOST_COUNTERS.items():
            value = _scaled(told.get(name), factor)
            yield from _counter(title, process + gpus, at_ns, value)


def _scaled(value: Any, factor: float) -> float | None:
    known = number(value)
    return None if known is None else known * factor


def _text(value: Any) -> str:
    """Text of a session as a name: one printable line."""
    return "".join(c if c.isprintable() else " " for c in str(value))[:500]
