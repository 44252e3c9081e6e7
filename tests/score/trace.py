"""What a torch.profiler trace says about the steps of one rank, by the design's own definitions.

An oracle for the probe: it shares no code with it and has other sources, which are the kernels'
times as the driver saw them, the calls that launched them, and the profiler's annotations.

The compute stream passes a host time h once the host has got there and all that was launched on
that stream before h is done: max(h, last end). So each annotation on the host gives a moment on the
device, and these moments cut the device's time into phases:

data            from the begin to the end of the loader's ``__next__``
forward         from there to the begin of backward
backward        to the end of the last autograd function, whose kernels are done
exposed_comm    to the return of backward, when the all-reduce and the copies back are done
pre_optimizer, optimizer, other: between them and around the optimizer's step

A step goes from the end of one gradient synchronisation to the end of the next.
"""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

COMMUNICATION = re.compile(r"nccl(Dev)?Kernel|^nccl|oneShotAllReduce|symm_mem|multimem", re.I)
"""Kernels of collectives; NCCL renamed its own from ncclKernel to ncclDevKernel."""

PHASES = (
    "data",
    "forward",
    "backward",
    "exposed_comm",
    "pre_optimizer",
    "optimizer",
    "other",
)

STEP = "torchtop.step#"
BACKWARD = "torchtop.backward"
"""Annotations of the training loop; the others are torch's."""

_AUTOGRAD = "autograd::engine::evaluate_function"
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST_CALL = ("cuda_runtime", "cuda_driver")
_RETURN_US = 5.0
"""By so much may a call seem to return before the work that it waited for was done."""
_ROUNDING_US = 0.001
"""The resolution of the times in a trace."""

_NEXT = {
    ("D0", "D1"): "data",
    ("D1", "B0"): "forward",
    ("B0", "BC"): "backward",
    ("BC", "B1"): "exposed_comm",
    ("B1", "O0"): "pre_optimizer",
    ("B1", "B0"): "forward",
    ("O0", "O1"): "optimizer",
    ("O1", "B0"): "forward",
}

Span = tuple[float, float]


@dataclass(frozen=True)
class TraceStep:
    """One step of one rank; microseconds on the device's clock.

    Attributes:
        step: its number.
        phases_us: by phase; they sum to the step.
        compute_us: in which a kernel that is no collective ran; None without a GPU, as below.
        comm_us: in which a collective's kernel ran.
        h2d_us: in which only copies from the host ran.
        data_idle_us: in which nothing ran, and the host was in the loader.
        sync_idle_us: nothing ran after the host had waited for the device.
        launch_idle_us: nothing ran because the host had not launched it yet, for other reasons.
    """

    step: int
    phases_us: dict[str, float]
    compute_us: float | None = None
    comm_us: float | None = None
    h2d_us: float | None = None
    data_idle_us: float | None = None
    sync_idle_us: float | None = None
    launch_idle_us: float | None = None

    @property
    def step_us(self) -> float:
        """Its duration."""
        return sum(self.phases_us.values())

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)


class Op(NamedTuple):
    """Something that ran on the device."""

    start: float
    end: float
    name: str
    stream: Any
    launched: float
    """When the host asked for it."""


class Mark(NamedTuple):
    """A moment of the host that ends a phase."""

    host: float
    code: str


@dataclass
class Events:
    """A trace, sorted out."""

    ops: list[Op] = field(default_factory=list)
    waits: list[Span] = field(default_factory=list)
    """Calls in which the host waits for the device."""
    loads: list[Span] = field(default_factory=list)
    backwards: list[Span] = field(default_factory=list)
    optimizers: list[Span] = field(default_factory=list)
    functions: list[Span] = field(default_factory=list)
    """Autograd's."""
    steps: list[tuple[float, float, int]] = field(default_factory=list)


def analyse(events: Iterable[dict[str, Any]]) -> list[TraceStep]:
    """The whole steps of a trace, in order: the first is only known from its end on.

    Args:
        events: ``traceEvents`` of a Chrome trace.
    """
    found = sort_out(events)
    timeline = Timeline(found)
    bounds = timeline.step_ends()
    return [timeline.step(number, begin, end) for (_, begin), (number, end) in pairwise(bounds)]


def load(path: Path) -> list[dict[str, Any]]:
    """The events of a trace file, compressed or not."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return events


def sort_out(events: Iterable[dict[str, Any]]) -> Events:
    """Find what the analysis needs."""
    found = Events()
    device: list[tuple[dict[str, Any], Span]] = []
    launches: dict[Any, float] = {}
    for event in events:
        if event.get("ph") != "X":
            continue
        kind, name = str(event.get("cat", "")).lower(), str(event["name"])
        span = (float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0)))
        if kind in _DEVICE:
            device.append((event, span))
        elif kind in _HOST_CALL:
            launches[event.get("args", {}).get("correlation")] = span[0]
            if "Synchronize" in name or name in ("cudaMemcpy", "cudaFree"):
                found.waits.append(span)
        elif kind in ("user_annotation", "cpu_op"):
            _annotation(found, name, span)
    for event, span in device:
        arguments = event.get("args", {})
        launched = launches.get(arguments.get("correlation"), span[0])
        found.ops.append(Op(*span, str(event["name"]), arguments.get("stream"), launched))
    for spans in (found.waits, found.loads, found.backwards, found.optimizers, found.functions):
        spans.sort()
    found.steps.sort()
    return found


def _annotation(found: Events, name: str, span: Span) -> None:
    if name.startswith(_AUTOGRAD):
        found.functions.append(span)
    elif name.startswith(STEP):
        found.steps.append((*span, int(name[len(STEP) :])))
    elif name == BACKWARD:
        found.backwards.append(span)
    elif "DataLoader)#" in name and name.endswith("__next__"):
        found.loads.append(span)
    elif name.startswith("Optimizer.step#"):
        found.optimizers.append(span)


class Timeline:
    """A trace on the clock of the compute stream."""

    def __init__(self, found: Events) -> None:
        self._found = found
        self._comm = [op for op in found.ops if COMMUNICATION.search(op.name)]
        main = _main_stream(found.ops)
        self._main = sorted(
            (op for op in found.ops if op.stream == main and not COMMUNICATION.search(op.name)),
            key=lambda op: op.launched,
        )
        self._launches = [op.launched for op in self._main]
        self._done: list[float] = []
        """Of each operation on the compute stream: when it and all before it are done."""
        latest = 0.0
        for op in self._main:
            latest = max(latest, op.end)
            self._done.append(latest)
        starts = sorted((op.start, op.launched) for op in self._main)
        self._starts = [start for start, _ in starts]
        self._launched = [launched for _, launched in starts]
        self._returns = sorted(end for _, end in found.waits)
        self._marks = _marks(found)
        self._passed = self._pass_all()

    def _pass_all(self) -> list[float]:
        """When the compute stream passes each mark."""
        passed: list[float] = []
        now, began = 0.0, 0.0
        for mark in self._marks:
            count = bisect_left(self._launches, mark.host)
            now = max(now, mark.host, self._done[count - 1] if count else 0.0)
            if mark.code == "B0":
                began = mark.host
            elif mark.code == "B1":
                sent = (op.end for op in self._comm if began <= op.launched <= mark.host)
                now = max(now, *sent, 0.0)
            passed.append(now)
        return passed

    def step_ends(self) -> list[tuple[int, int]]:
        """The number of each step, and the mark that ends it."""
        ends: list[tuple[int, int]] = []
        for begin, end, number in self._found.steps:
            last = [
                index
                for index, mark in enumerate(self._marks)
                if mark.code == "B1" and begin <= mark.host <= end
            ]
            if last:
                ends.append((number, last[-1]))
        return ends

    def step(self, number: int, first: int, last: int) -> TraceStep:
        """The step between two marks."""
        phases = dict.fromkeys(PHASES, 0.0)
        for index in range(first, last):
            codes = (self._marks[index].code, self._marks[index + 1].code)
            phases[_NEXT.get(codes, "other")] += self._passed[index + 1] - self._passed[index]
        if not self._found.ops:
            return TraceStep(number, phases)
        return TraceStep(number, phases, **self._activity(self._passed[first], self._passed[last]))

    def _activity(self, begin: float, end: float) -> dict[str, float]:
        ops = [op for op in self._found.ops if op.end > begin and op.start < end]
        comm = union(clip(((op.start, op.end) for op in self._comm), begin, end))
        copies = [op for op in ops if "HtoD" in op.name]
        others = [op for op in ops if op not in copies]
        compute = [op for op in others if not COMMUNICATION.search(op.name)]
        busy = union(clip(((op.start, op.end) for op in ops), begin, end))
        computing = union(clip(((op.start, op.end) for op in compute), begin, end))
        copying = union(clip(((op.start, op.end) for op in copies), begin, end))
        idle = {"data": 0.0, "sync": 0.0, "launch": 0.0}
        for gap in subtract([(begin, end)], busy):
            for why, microseconds in self._why_idle(gap).items():
                idle[why] += microseconds
        return {
            "compute_us": length(computing),
            "comm_us": length(comm),
            "h2d_us": length(subtract(subtract(copying, computing), comm)),
            **{f"{why}_idle_us": value for why, value in idle.items()},
        }

    def _why_idle(self, gap: Span) -> dict[str, float]:
        """Whom the device waited for: nobody where what ends the gap had been launched before."""
        begin, end = gap
        following = bisect_left(self._starts, end - _ROUNDING_US)
        if following < len(self._starts) and self._launched[following] <= begin:
            return {}
        loading = length(clip(self._found.loads, begin, end))
        back = bisect_left(self._returns, begin - _RETURN_US)
        waited = back < len(self._returns) and self._returns[back] <= end
        return {"data": loading, "sync" if waited else "launch": end - begin - loading}


def _main_stream(ops: Sequence[Op]) -> Any:
    """The stream that computes most."""
    busy: dict[Any, float] = {}
    for op in ops:
        if not COMMUNICATION.search(op.name):
            busy[op.stream] = busy.get(op.stream, 0.0) + op.end - op.start
    return max(busy, key=lambda stream: busy[stream], default=None)


def _marks(found: Events) -> list[Mark]:
    marks = [
        Mark(at, code) for span in found.loads for at, code in zip(span, ("D0", "D1"), strict=True)
    ]
    marks += [
        Mark(at, code)
        for span in found.optimizers
        for at, code in zip(span, ("O0", "O1"), strict=True)
    ]
    ends = sorted(end for _, end in found.functions)
    for begin, end in found.backwards:
        inside = ends[bisect_left(ends, begin) : bisect_left(ends, end)]
        marks += [Mark(begin, "B0"), Mark(inside[-1] if inside else end, "BC"), Mark(end, "B1")]
    return sorted(marks, key=lambda mark: mark.host)


# -- sets of intervals ---------------------------------------------------------------------------


def union(spans: Iterable[Span]) -> list[Span]:
    """The same without overlaps, in order: streams run side by side, and sums count twice."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def clip(spans: Iterable[Span], begin: float, end: float) -> list[Span]:
    """What lies between two times."""
    return [(max(a, begin), min(b, end)) for a, b in spans if b > begin and a < end]


def subtract(spans: Iterable[Span], holes: Sequence[Span]) -> list[Span]:
    """What is left without the holes, which are in order and do not overlap."""
    left: list[Span] = []
    for begin, end in spans:
        at = begin
        for a, b in clip(holes, begin, end):
            if a > at:
                left.append((at, a))
            at = max(at, b)
        if at < end:
            left.append((at, end))
    return left


def length(spans: Iterable[Span]) -> float:
    """Their lengths added up."""
    return sum(end - begin for begin, end in spans)
