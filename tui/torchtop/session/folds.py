"""Records of one writer, folded: the parts that a session's state is made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchtop.session.launches import last_launch, launch_of, started
from torchtop.session.records import Record

SERIES_SECONDS = 900
"""Length of the per-second series; older history is in the minutes."""

_RECENT_TICKS = 40
"""Seconds that an end may take: the whole stop ladder."""

DEVICE_METRICS = ("util_percent", "sm_active", "memory_used_bytes", "power_w")
"""Device metrics that are kept as series for the charts."""


@dataclass
class NodeFold:
    """What one node's sampler has told so far."""

    header: dict[str, Any] = field(default_factory=dict)
    tick: dict[str, Any] = field(default_factory=dict)
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_RECENT_TICKS))
    """The last ticks, `tick` among them."""
    processes: dict[str, Any] = field(default_factory=dict)
    gpu_series: list[dict[str, deque[float | None]]] = field(default_factory=list)
    cpu_series: deque[float | None] = field(default_factory=lambda: deque(maxlen=SERIES_SECONDS))

    def apply(self, record: Record) -> None:
        """Take in one record of ``devices.jsonl``."""
        if record["kind"] == "header":
            self.gpu_series = [
                {name: deque(maxlen=SERIES_SECONDS) for name in DEVICE_METRICS}
                for _ in record.get("gpus") or ()
            ]
            self.header = record
        elif record["kind"] == "processes":
            self.processes = record
        elif record["kind"] == "tick":
            metrics = record.get("gpus") or {}
            columns = {name: metrics.get(name) for name in DEVICE_METRICS}
            self.cpu_series.append((record.get("host") or {}).get("cpu_percent"))
            for index, series in enumerate(self.gpu_series):
                for name, values in series.items():
                    values.append(at(columns[name], index))
            self.tick = record
            self.recent.append(record)

    def tick_before(self, mono_ns: int | None) -> dict[str, Any]:
        """The last tick before a moment: that of a run's end, after which the GPUs idle.

        The last of all where there is no such moment, or no tick that old.
        """
        if mono_ns is None:
            return self.tick
        stamped = (tick for tick in reversed(self.recent) if tick.get("mono_ns", 0) < mono_ns)
        return next(stamped, self.tick)


@dataclass
class RankFold:
    """What the files of one rank have told so far; those of its last attempt count."""

    source: str = ""
    header: dict[str, Any] = field(default_factory=dict)
    loaders: dict[int, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    beat: dict[str, Any] = field(default_factory=dict)
    probe: dict[str, Any] = field(default_factory=dict)
    inspected: dict[str, Any] = field(default_factory=dict)
    steps_done: int = 0
    """Steps that it has finished, the unrecorded ones among them."""
    disabled: str | None = None
    """Why the probe took itself out, where it could say so in rank.py's file only."""
    process_header: dict[str, Any] = field(default_factory=dict)
    process_source: str = ""
    torch: dict[str, Any] = field(default_factory=dict)
    """The ``torch`` record: what its PyTorch is."""
    exit_code: int | None = None
    exited_ns: int | None = None
    exception: dict[str, Any] | None = None

    def apply_process(self, source: str, record: Record) -> None:
        """Take in one record of rank.py's file `source`."""
        if record["kind"] == "header" and _is_newer(record, self.process_header):
            self.process_source, self.process_header = source, record
            self.exit_code = self.exited_ns = self.exception = self.disabled = None
            self.torch = {}
        elif source != self.process_source:
            return  # of an attempt before the last
        elif record["kind"] == "exception":
            self.exception = record
        elif record["kind"] == "exit":
            self.exit_code, self.exited_ns = record.get("code"), record.get("mono_ns")
        elif record["kind"] == "torch":
            self.torch = record
        elif record["kind"] == "probe":
            self.disabled = record.get("disabled")

    @property
    def over(self) -> bool:
        """Whether the process that trained has ended, or another one has come in its place."""
        if not self.header or not self.process_header:
            return False
        other = self.process_header.get("pid") != self.header.get("pid")
        return other or self.exited_ns is not None

    def process_alone(self) -> RankFold:
        """What the process tells, without what the probe does."""
        return RankFold(
            disabled=self.disabled,
            process_header=self.process_header,
            process_source=self.process_source,
            torch=self.torch,
            exit_code=self.exit_code,
            exited_ns=self.exited_ns,
            exception=self.exception,
        )

    def apply(self, source: str, record: Record) -> None:
        """Take in one record of the probe's file `source`."""
        kind, subject = record["kind"], str(record.get("subject", ""))
        if kind == "header" and _is_newer(record, self.header):
            self.source, self.header = source, record
            self.loaders, self.facts = {}, {}
            self.memory, self.beat, self.probe, self.inspected = {}, {}, {}, {}
            self.steps_done = 0
        elif source != self.source:
            return
        elif kind == "facts" and subject == "loader":
            self.loaders[int(record.get("loader", 0))] = record
        elif kind == "facts":
            self.facts[subject] = {**self.facts.get(subject, {}), **record}
        elif kind == "totals":
            self.steps_done = max(self.steps_done, int(record.get("to_step") or 0))
        elif kind == "memory":
            self.memory = record
        elif kind == "beat":
            self.beat = record
        elif kind == "probe":
            self.probe = record
        elif kind == "inspected":
            self.inspected = record


def _is_newer(header: Mapping[str, Any], held: Mapping[str, Any]) -> bool:
    """Whether a rank's file is of a later attempt: files are read in any order."""
    return not held or started(header) >= started(held)


def of_last_launch(folds: Mapping[int, RankFold]) -> dict[int, RankFold]:
    """The ranks of a session's last launch, by number: what others told of themselves is left out.

    Of one that has not trained in it yet, only its process is known.
    """
    trained = {number: fold for number, fold in folds.items() if fold.header}
    last = last_launch(fold.header for fold in trained.values())
    now = {number: fold for number, fold in trained.items() if launch_of(fold.header) == last}
    if len(now) == len(trained):
        return dict(sorted(folds.items()))
    told = [fold.header.get("world_size") for fold in now.values()]
    world = max((size for size in told if isinstance(size, int)), default=1)
    return {
        number: now.get(number) or fold.process_alone()
        for number, fold in sorted(folds.items())
        if number in now or number < world
    }


def at(values: Any, index: int) -> Any:
    """The value of one GPU in a column, or None."""
    return values[index] if isinstance(values, list) and index < len(values) else None


def fold_ranks(folder: Path, read: Callable[[Path], list[Record]]) -> list[RankFold]:
    """What each rank of the last launch says of it, in its last attempt, by rank.

    One that never trained has no header.

    Args:
        folder: a session's ``ranks``.
        read: gives a file's records, its header first.
    """
    found: dict[int, RankFold] = {}
    for file in sorted(folder.glob("*.jsonl")):
        records = read(file)
        number = records[0].get("rank") if records else None
        if not isinstance(number, int):
            continue
        rank = found.setdefault(number, RankFold())
        process = file.name.endswith(".process.jsonl")
        for record in records:
            (rank.apply_process if process else rank.apply)(file.name, record)
    return list(of_last_launch(found).values())
