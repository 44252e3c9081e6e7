"""A session as TensorBoard's event files: one run for the job, and one a rank.

Written by TensorBoard's own writer, so that its reader needs no luck. The step of every value is
the training step; its wall time is that of the record.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchtop.export.source import RankFile, Source
from torchtop.session.paths import SessionError
from torchtop.session.records import PHASES
from torchtop.session.values import child, items, number

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

_GPU_TAGS = {
    "sm_active": "sm_active",
    "util_percent": "util_percent",
    "memory_used_bytes": "memory_used_bytes",
    "power_w": "power_w",
}

Values = Mapping[str, Any]


def need_tensorboard() -> None:
    """Make sure that TensorBoard's writer is there.

    Raises:
        SessionError: it is not.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise SessionError(
            "event files are written by TensorBoard, which is not installed: "
            "pip install 'torchtop[tensorboard]'"
        )


def write_events(source: Source, directory: Path) -> list[Path]:
    """Write the runs ``job`` and ``rank-N``.

    Args:
        source: the session.
        directory: the log directory, empty: a run is all event files in a folder.

    Returns:
        The runs' folders.

    Raises:
        OSError: they cannot be written.
        SessionError: TensorBoard is not installed.
    """
    need_tensorboard()
    ranks = source.ranks()
    runs = [directory / "job", *(directory / f"rank-{rank.rank}" for rank in ranks)]
    with _Run(runs[0]) as run:
        _write_job(source, run)
        _write_gpus(source, run)
        for rank in ranks[:1]:
            _write_scalars(source, rank, run)
    for rank, folder in zip(ranks, runs[1:], strict=True):
        with _Run(folder) as run:
            _write_scalars(source, rank, run)
            _write_steps(source, rank, run)
    return runs


class _Run:
    """The event file of one run."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._writer: EventFileWriter = EventFileWriter(str(folder))

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, step: Any, unix_ns: int, values: Values) -> None:
        """Values of one step, by tag; those that are not known are left out."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        known = {tag: number(value) for tag, value in values.items()}
        told = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in known.items()
            if value is not None
        ]
        if told and isinstance(step, int) and 0 <= step < 2**63:
            event = Event(step=step, wall_time=unix_ns / 1e9, summary=Summary(value=told))
            self._writer.add_event(event)


def _write_job(source: Source, run: _Run) -> None:
    """Throughput, latency and the frontier's phases each second."""
    for record in source.analyses():
        if not record.get("window"):
            continue
        rates = {f"throughput/{k}": v for k, v in child(record, "throughput").items()}
        steps = {f"step_ms/{k}": v for k, v in child(record, "step_ms").items()}
        phases = child(record, "phases")
        times = {f"phase_ms/{phase}": child(phases, phase).get("ms") for phase in PHASES}
        shares = {f"phase_share/{phase}": child(phases, phase).get("share") for phase in PHASES}
        values = {_tag(tag): value for tag, value in {**rates, **steps}.items()}
        moment = source.unix_ns(record.get("mono_ns"))
        run.add(record.get("step"), moment, {**values, **times, **shares})


def _write_gpus(source: Source, run: _Run) -> None:
    """The counters of every GPU, at the step that the job had come to."""
    steps = _StepAt(source)
    for host, path, facts in source.samplers():
        prefix = f"{_tag(host)}/" if len(source.paths.nodes()) > 1 else ""
        for record in source.records(path, host, "tick"):
            moment = source.unix_ns(record.get("mono_ns"), host)
            metrics = child(record, "gpus")
            values = {
                f"gpu/{prefix}{place}/{_GPU_TAGS[name]}": value
                for name in _GPU_TAGS
                for place, value in enumerate(items(metrics, name)[: len(facts)])
            }
            run.add(steps.at(moment), moment, values)


class _StepAt:
    """The last step that all ranks had finished at a time."""

    def __init__(self, source: Source) -> None:
        self._known = [
            (source.unix_ns(record.get("mono_ns")), record["step"])
            for record in source.analyses()
            if isinstance(record.get("step"), int)
        ]

    def at(self, unix_ns: int) -> int | None:
        """None before the first step."""
        from bisect import bisect_right

        place = bisect_right(self._known, unix_ns, key=lambda known: known[0])
        return self._known[place - 1][1] if place else None


def _write_scalars(source: Source, rank: RankFile, run: _Run) -> None:
    """What the script logged on a rank: loss, accuracy."""
    for record in source.records(rank.path, rank.host, "scalars"):
        values = {_tag(str(name)): v for name, v in child(record, "values").items()}
        run.add(record.get("step"), source.unix_ns(record.get("mono_ns"), rank.host), values)


def _write_steps(source: Source, rank: RankFile, run: _Run) -> None:
    """The phases of every recorded step of a rank, on its device's clock."""
    for record in source.records(rank.path, rank.host, "steps"):
        ends = items(record, "end_ns")
        columns = {phase: items(record, f"{phase}_us") for phase in PHASES}
        for place, (step, end) in enumerate(zip(items(record, "step"), ends, strict=False)):
            phases = dict(_milliseconds(columns, place))
            whole = sum(phases.values()) if len(phases) == len(PHASES) else None
            values = {f"phase_ms/{phase}": value for phase, value in phases.items()}
            run.add(step, source.unix_ns(end, rank.host), {**values, "step_ms": whole})


def _milliseconds(columns: Mapping[str, list[Any]], place: int) -> Iterator[tuple[str, float]]:
    for phase, column in columns.items():
        value = number(column[place]) if place < len(column) else None
        if value is not None:
            yield phase, value / 1e3


def _tag(text: str) -> str:
    """A name as a tag: the characters that every version of TensorBoard takes, 100 at most."""
    return re.sub(r"[^-/\w.]", "_", text, flags=re.ASCII).lstrip("/")[:100] or "_"
