"""A simulated run as the records that the ranks' probes would write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from diagnose.simulator import Run
from torchtop.session.records import is_recorded

_NOT_COLUMNS = ("device_us", "ready")
START_NS = 1_000_000_000_000


def records(
    run: Run, strides: tuple[int, ...] = (1,), every_us: float = 500_000.0
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The run as records of the ranks' files, in the order of their time.

    Args:
        run: the run.
        strides: of the ranks in turn; the last one's goes on.
        every_us: how often a probe writes.
    """
    merged: list[tuple[int, str, dict[str, Any]]] = []
    for rank in range(len(run.rows)):
        stride = strides[min(rank, len(strides) - 1)]
        source = source_of(rank)
        merged += [(r["mono_ns"], source, r) for r in _rank(run, rank, stride, every_us)]
    for _, source, record in sorted(merged, key=lambda item: item[0]):
        yield source, record


def source_of(rank: int, attempt: int = 0) -> str:
    """The file of a rank."""
    return f"ranks/{rank}-{attempt}-{100 + rank + 1000 * attempt}.jsonl"


def _rank(run: Run, rank: int, stride: int, every_us: float) -> Iterator[dict[str, Any]]:
    job, loader = run.job, run.job.ranks[rank].loader
    device = (
        {"type": "cuda", "index": rank, "name": "GPU", "uuid": f"GPU-{rank}"}
        if job.cuda
        else {"type": "cpu", "index": None, "name": "x86_64", "uuid": None}
    )
    yield {
        "kind": "header",
        "mono_ns": START_NS,
        "wall_s": 1e9,
        "boot_id": "boot",
        "host": "node",
        "rank": rank,
        "world_size": len(run.rows),
        "attempt": 0,
        "device": device,
    }
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
    }
    yield {
        "kind": "facts",
        "mono_ns": START_NS + 2,
        "subject": "ddp",
        "gradient_bytes": 102_000_000,
        "gradient_as_bucket_view": False,
        "broadcast_buffers": job.broadcast,
    }
    chunk: list[dict[str, Any]] = []
    for row in run.rows[rank]:
        chunk.append(row)
        if row["end_ns"] - chunk[0]["end_ns"] >= every_us * 1000 or row is run.rows[rank][-1]:
            yield from _chunk(chunk, stride)
            chunk = []


def _chunk(rows: list[dict[str, Any]], stride: int) -> Iterator[dict[str, Any]]:
    now = START_NS + rows[-1]["end_ns"] + 2
    names = [name for name in rows[-1] if name not in _NOT_COLUMNS]
    kept = [row for row in rows if is_recorded(row["step"], stride)]
    columns = {name: [row.get(name) for row in kept] for name in names}
    columns["end_ns"] = [START_NS + row["end_ns"] for row in kept]
    if kept:
        yield {"kind": "steps", "mono_ns": now, "stride": stride} | columns
    sums = {
        name: sum(row.get(name, 0) for row in rows)
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
