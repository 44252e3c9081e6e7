"""Data: how long the GPU waits for it, how full the queue is, and what makes the batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchtop.app.charts.bar import meter
from torchtop.app.format import NA, count, known, ms, percent, size
from torchtop.app.panes.parts import child, facts, items, joined, ratio
from torchtop.app.text import Row, Span, clean, fit
from torchtop.app.view import View
from torchtop.session.state import Rank, Snapshot

WORKER_FULL_PERCENT = 90.0
"""A worker above this has no time left: the processor limits it, not waiting."""


def aside(view: View, width: int) -> list[Span]:
    """Whether the data is real."""
    snapshot = view.snapshot
    if snapshot is None or not snapshot.ranks:
        return []
    if is_synthetic(snapshot):
        return [("synthetic data", "note")]
    loader = _loader(snapshot)
    return [(clean(loader.get("dataset") or "", 30), "dim")] if loader.get("dataset") else []


def is_synthetic(snapshot: Snapshot) -> bool:
    """Whether the workload made its data up."""
    return any(rank.script.get("synthetic_data") is True for rank in snapshot.ranks)


def body(view: View, width: int, height: int) -> list[Row]:
    """Stall, queue, workers, settings."""
    snapshot = view.snapshot
    if snapshot is None or not snapshot.analysis:
        return [fit([("no batch yet", "dim")], width)][:height]
    loader = _loader(snapshot)
    rows = [
        _stall(view, snapshot, width),
        _queue(view, snapshot, loader, width),
        _workers(snapshot, loader, width),
    ]
    rows += _settings(loader, width)
    return rows[:height]


def _loader(snapshot: Snapshot) -> Mapping[str, Any]:
    """The training loader's facts: of the first rank that has told any."""
    return next((rank.loaders[0] for rank in snapshot.ranks if rank.loaders), {})


def _stall(view: View, snapshot: Snapshot, width: int) -> Row:
    stall = child(child(snapshot.analysis, "phases"), "data")
    host_ms = [known(r.get("data_host_ms")) for r in items(snapshot.analysis, "ranks")]
    told = [value for value in host_ms if value is not None]
    share = known(stall.get("share"))
    style = "warn" if share is not None and share >= 0.1 else "value"
    return fit(
        joined(
            [
                [("stall ", "dim"), (percent(share), style), (f" {ms(stall.get('ms'))}", "")],
                [("next() ", "dim"), (ms(max(told)) if told else NA, "")],
            ]
        ),
        width,
    )


def _queue(view: View, snapshot: Snapshot, loader: Mapping[str, Any], width: int) -> Row:
    """Batches that wait, on the rank that has fewest, of as many as the workers may prepare."""
    ready = [rank.ready for rank in snapshot.ranks if rank.ready is not None]
    workers, ahead = known(loader.get("workers")), known(loader.get("prefetch_factor"))
    capacity = workers * ahead if workers and ahead else None
    if workers == 0:
        return fit([("queue ", "dim"), ("none: batches are made in the rank itself", "")], width)
    if not ready:
        return fit([("queue ", "dim"), (NA, "")], width)
    least = min(ready)
    bar = meter(ratio(least, capacity), max(4, min(16, width // 4)), view.glyphs, "bar")
    of = f" of {capacity:.0f}" if capacity else ""
    label: list[Span] = [("queue ", "dim"), *(bar if capacity else [])]
    label += [(f" {least}", "value"), (of + " ready", "dim")]
    if len(ready) > 1 and max(ready) != least:
        label.append((f" (most {max(ready)})", "faint"))
    return fit(label, width)


def _workers(snapshot: Snapshot, loader: Mapping[str, Any], width: int) -> Row:
    """The workers' load on the rank whose workers are busiest."""
    number = known(loader.get("workers"))
    label: list[Span] = [("workers ", "dim"), (count(number) if number is not None else NA, "")]
    busiest = max(snapshot.ranks, key=_load, default=None)
    loads = sorted(_loads(busiest), reverse=True) if busiest else []
    if loads:
        style = "warn" if loads[-1] >= WORKER_FULL_PERCENT else ""
        label += [
            ("  CPU ", "dim"),
            (" ".join(f"{v:.0f}" for v in loads[:8]), style),
            (" %", "dim"),
        ]
        if len(snapshot.ranks) > 1 and busiest:
            label.append((f" (r{busiest.rank})", "faint"))
    return fit(label, width)


def _loads(rank: Rank) -> Sequence[float]:
    values = [known(worker.get("cpu_percent")) for worker in items(rank.process, "workers")]
    return [value for value in values if value is not None]


def _load(rank: Rank) -> float:
    return sum(_loads(rank))


def _settings(loader: Mapping[str, Any], width: int) -> list[Row]:
    """The loader's settings as the rank found them."""
    if not loader:
        return [fit([("loader unknown: its phase reads unknown", "dim")], width)]
    first = child(loader, "first_batch")
    pairs = [
        ("batch", count(loader.get("batch_size") or first.get("samples"))),
        ("prefetch", count(loader.get("prefetch_factor"))),
        ("pinned", _yes(loader.get("pin_memory"))),
        ("persistent", _yes(loader.get("persistent_workers"))),
        ("batches", count(loader.get("batches"))),
        ("bytes", size(first.get("bytes"))),
    ]
    rows, rest = [], pairs
    while rest:
        shown = facts(rest, width)
        taken = max(1, sum(style == "dim" for _, style in shown))
        rows.append(fit(shown, width))
        rest = rest[taken:]
    return rows


def _yes(value: object) -> str:
    return "yes" if value is True else "no" if value is False else NA
