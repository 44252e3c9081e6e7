"""A simulated run as the records that the ranks' probes and a sampler would write."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from diagnose.simulator import Run
from torchtop.session.records import PHASES, is_recorded

_NOT_COLUMNS = ("device_us", "busy_us", "ready")
_LATER_COLUMNS = {
    *(f"lag_{phase}_us" for phase in PHASES if phase not in ("forward", "backward")),
    *(f"{phase}_host_us" for phase in PHASES if phase != "data"),
}
"""What the first probes did not write."""
START_NS = 1_000_000_000_000
SECOND_NS = 1_000_000_000
DEVICES = "nodes/node/devices.jsonl"
GPU = {
    "memory_total_bytes": 150_000_000_000,
    "power_limit_w": 700.0,
    "sm_clock_max_mhz": 1980,
    "gpm": True,
    "nvlink_links": 18,
}


@dataclass(frozen=True)
class Sampler:
    """What a node's sampler sees beside the GPUs' utilization, which is the simulation's own."""

    cores: int = 32
    cpu_percent: float = 30.0
    gpu: dict[str, Any] = field(default_factory=dict)
    """Metrics of every GPU."""
    gpus: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Metrics of one GPU."""
    host: dict[str, Any] = field(default_factory=dict)
    strangers: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Other processes on a GPU."""


@dataclass(frozen=True)
class Told:
    """What the ranks tell beside their steps."""

    loader: dict[str, Any] = field(default_factory=dict)
    ddp: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    script: dict[str, Any] = field(default_factory=dict)
    memory: tuple[dict[str, Any], ...] = ()
    """The ``memory`` records of rank 0, five seconds apart; the last one's go on."""


def records(
    run: Run,
    strides: tuple[int, ...] = (1,),
    every_us: float = 500_000.0,
    sampler: Sampler | None = None,
    told: Told | None = None,
    old: bool = False,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The run as records of a session's files, in the order of their time.

    Args:
        run: the run.
        strides: of the ranks in turn; the last one's goes on.
        every_us: how often a probe writes.
        sampler: the sampler; none by default.
        told: facts.
        old: whether the probe is one of the first, which told less.
    """
    merged: list[tuple[int, str, dict[str, Any]]] = []
    if sampler is not None:
        merged += [(r["mono_ns"], DEVICES, r) for r in _sampled(run, sampler)]
    for rank in range(len(run.rows)):
        stride = strides[min(rank, len(strides) - 1)]
        source = source_of(rank)
        made = _rank(run, rank, stride, every_us, told or Told())
        merged += [(r["mono_ns"], source, _as_old(r) if old else r) for r in made]
    for _, source, record in sorted(merged, key=lambda item: item[0]):
        yield source, record


def source_of(rank: int, attempt: int = 0) -> str:
    """The file of a rank."""
    return f"ranks/{rank}-{attempt}-{100 + rank + 1000 * attempt}.jsonl"


def _as_old(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _LATER_COLUMNS}


def _rank(
    run: Run, rank: int, stride: int, every_us: float, told: Told
) -> Iterator[dict[str, Any]]:
    yield _header(run, rank)
    yield from _facts(run, rank, told)
    chunk: list[dict[str, Any]] = []
    waiting = list(run.pauses[rank])
    written = 0
    for row in run.rows[rank]:
        chunk.append(row)
        if row["end_ns"] - chunk[0]["end_ns"] >= every_us * 1000 or row is run.rows[rank][-1]:
            now = START_NS + chunk[-1]["end_ns"] + 2
            while waiting and waiting[0][1] * 1000 < row["end_ns"]:
                step, start_us, pause = waiting.pop(0)
                if pause.what:
                    start_ns = START_NS + round(start_us * 1000)
                    fields = {"start_ns": start_ns, "duration_us": round(pause.us)}
                    yield {
                        "kind": "pause",
                        "mono_ns": now,
                        "what": pause.what,
                        "step": step,
                    } | fields
            yield from _chunk(chunk, stride)
            if told.memory and now - START_NS >= 5 * written * SECOND_NS:
                index = min(written, len(told.memory) - 1)
                yield {"kind": "memory", "mono_ns": now + 3} | told.memory[index]
                written += 1
            chunk = []


def _header(run: Run, rank: int) -> dict[str, Any]:
    device = (
        {"type": "cuda", "index": rank, "name": "NVIDIA H200", "uuid": f"GPU-{rank}"}
        if run.job.cuda
        else {"type": "cpu", "index": None, "name": "x86_64", "uuid": None}
    )
    return {
        "kind": "header",
        "mono_ns": START_NS,
        "wall_s": 1e9,
        "boot_id": "boot",
        "host": "node",
        "pid": 100 + rank,
        "rank": rank,
        "world_size": len(run.rows),
        "attempt": 0,
        "device": device,
    }


def _facts(run: Run, rank: int, told: Told) -> Iterator[dict[str, Any]]:
    loader = run.job.ranks[rank].loader
    yield {
        "kind": "facts",
        "mono_ns": START_NS + 1,
        "subject": "loader",
        "loader": 0,
        "workers": loader.workers,
        "prefetch_factor": loader.prefetch if loader.workers else None,
        "pin_memory": True,
        "persistent_workers": True,
        "batch_size": 64,
        "batches": 1000,
    } | told.loader
    yield {
        "kind": "facts",
        "mono_ns": START_NS + 2,
        "subject": "ddp",
        "gradient_bytes": 102_000_000,
        "parameters": 25_500_000,
        "buckets": [17_000_000] * 6,
        "gradient_as_bucket_view": False,
        "broadcast_buffers": run.job.broadcast,
    } | told.ddp
    for subject, fields in (("optimizer", told.optimizer), ("script", told.script)):
        if fields:
            yield {"kind": "facts", "mono_ns": START_NS + 3, "subject": subject} | fields


def _chunk(rows: list[dict[str, Any]], stride: int) -> Iterator[dict[str, Any]]:
    now = START_NS + rows[-1]["end_ns"] + 2
    names = [name for name in rows[-1] if name not in _NOT_COLUMNS]
    kept = [row for row in rows if is_recorded(row["step"], stride)]
    columns = {name: [row.get(name) for row in kept] for name in names}
    columns["end_ns"] = [START_NS + row["end_ns"] for row in kept]
    if kept:
        yield {"kind": "steps", "mono_ns": now, "stride": stride} | columns
    sums = {
        name: sum(row[name] for row in rows)
        for name in names
        if name.endswith("_us") and not name.startswith("lag")
    }
    yield {
        "kind": "totals",
        "mono_ns": now + 1,
        "from_step": rows[0]["step"],
        "to_step": rows[-1]["step"] + 1,
        "steps": len(rows),
        "phase_steps": len(rows),
        "samples": sum(row["samples"] for row in rows),
        "tokens": None,
    } | sums
    yield {
        "kind": "beat",
        "mono_ns": now + 2,
        "marker": "B1",
        "marker_ns": START_NS + rows[-1]["end_ns"],
        "step": rows[-1]["step"],
        "ready": rows[-1]["ready"],
    }


# ------------------------------------------------------------------------------------- the sampler
def _sampled(run: Run, sampler: Sampler) -> Iterator[dict[str, Any]]:
    places = range(len(run.rows)) if run.job.cuda else ()
    gpus = [{"index": rank, "uuid": f"GPU-{rank}", "name": "NVIDIA H200"} | GPU for rank in places]
    yield {
        "kind": "header",
        "mono_ns": START_NS,
        "host": "node",
        "boot_id": "boot",
        "gpus": gpus,
        "cpu_count": sampler.cores,
    }
    end_ns = max(rows[-1]["end_ns"] for rows in run.rows)
    for second in range(1, end_ns // SECOND_NS + 1):
        now = START_NS + second * SECOND_NS
        metrics = [_metrics(run, rank, second, sampler) for rank in places]
        names = {name for metric in metrics for name in metric}
        yield {
            "kind": "tick",
            "mono_ns": now,
            "gpus": {name: [metric.get(name) for metric in metrics] for name in names},
            "host": {"cpu_percent": sampler.cpu_percent} | sampler.host,
        }
        if second % 5 == 0:
            yield _processes(run, now, sampler)


def _metrics(run: Run, rank: int, second: int, sampler: Sampler) -> dict[str, Any]:
    rows = run.rows[rank]
    ends = [row["device_us"] for row in rows]

    def busy_at(moment_us: float) -> float:
        index = min(bisect_right(ends, moment_us), len(rows) - 1)
        before = rows[index - 1] if index else {"device_us": 0.0, "busy_us": 0.0}
        span = rows[index]["device_us"] - before["device_us"]
        part = min(1.0, (moment_us - before["device_us"]) / span)
        return before["busy_us"] + part * (rows[index]["busy_us"] - before["busy_us"])

    busy = busy_at(second * 1e6) - busy_at((second - 1) * 1e6)
    util = {"util_percent": round(min(100.0, busy / 1e4)), "throttle": []}
    return util | {"sm_clock_mhz": 1980} | sampler.gpu | sampler.gpus.get(rank, {})


def _processes(run: Run, now: int, sampler: Sampler) -> dict[str, Any]:
    places = range(len(run.rows)) if run.job.cuda else ()
    ranks = [
        {
            "rank": rank,
            "process_pid": 100 + rank,
            "cpu_percent": 100.0,
            "workers": [
                {"process_pid": 1000 * (rank + 1) + worker, "cpu_percent": percent}
                for worker in range(run.job.ranks[rank].loader.workers)
            ],
        }
        for rank, percent in enumerate(run.worker_percent)
    ]
    ours = [
        [{"process_pid": 100 + r, "used_bytes": 8_000_000_000, "name": "python"}] for r in places
    ]
    gpus = [own + sampler.strangers.get(rank, []) for rank, own in zip(places, ours, strict=True)]
    return {"kind": "processes", "mono_ns": now, "gpus": gpus, "ranks": ranks}
