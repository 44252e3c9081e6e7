"""Data: how long the GPU waits for it, how full the queue is, and what makes the batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchtop.app.charts.bar import meter
from torchtop.app.charts.table import Column, header, layout, record
from torchtop.app.format import NA, count, known, ms, percent, size
from torchtop.app.panes.parts import child, ratio, records
from torchtop.app.text import Row, Span, clean, fit, row_width
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
    """Stall, queue, workers, settings; queue and workers share a line where there are few."""
    snapshot = view.snapshot
    if snapshot is None or not snapshot.analysis:
        return [fit([("no batch yet", "dim")], width)][:height]
    loader = _loader(snapshot)
    if not loader and not known(snapshot.analysis.get("steps")):
        return [fit([("no batch yet", "dim")], width)][:height]
    rows = [_stall(snapshot, width)]
    if height > 3:
        rows.append(fit(_queue(view, snapshot, loader, width), width))
        rows.append(fit(_workers(snapshot, loader, width), width))
    else:
        load = _busiest(snapshot)
        cpu: list[Span] = (
            [("  CPU ", "dim"), (f"{max(load):.0f} %", _load_style(load))] if load else []
        )
        number = count(loader.get("workers"))
        short = [*_short_queue(snapshot, loader), ("  workers ", "dim"), (number, ""), *cpu]
        rows.append(fit(short, width))
    rows += _settings(loader, width)
    if height >= len(rows) + len(snapshot.ranks) + 2 and len(snapshot.ranks) > 1:
        rows += _by_rank(snapshot, width)
    return rows[:height]


_RANKS = (
    Column("rank", "rank", 4),
    Column("stall", "stall", 8, ">"),
    Column("next", "next()", 8, ">"),
    Column("ready", "ready", 5, ">"),
    Column("workers", "workers' CPU %", 14, stretch=1, most=60),
)


def _by_rank(snapshot: Snapshot, width: int) -> list[Row]:
    """A line a rank, where there is room for all of them."""
    placed = layout(_RANKS, width)
    measured = {str(entry.get("rank")): entry for entry in records(snapshot.analysis, "ranks")}
    rows = [fit([], width), header(placed, width)]
    for rank in snapshot.ranks:
        entry = measured.get(str(rank.rank), {})
        loads = sorted(_loads(rank), reverse=True)
        values: dict[str, list[Span]] = {
            "rank": [(f"r{rank.rank}", "accent")],
            "stall": [(ms(child(entry, "phases").get("data")), "")],
            "next": [(ms(entry.get("data_host_ms")), "")],
            "ready": [(count(rank.ready), "")],
            "workers": [(" ".join(f"{v:.0f}" for v in loads) or NA, _load_style(loads))],
        }
        rows.append(record(placed, values, width))
    return rows


def _loader(snapshot: Snapshot) -> Mapping[str, Any]:
    """The training loader's facts: of the first rank that has told any."""
    return next((rank.loaders[0] for rank in snapshot.ranks if rank.loaders), {})


def _stall(snapshot: Snapshot, width: int) -> Row:
    stall = child(child(snapshot.analysis, "phases"), "data")
    host_ms = [known(r.get("data_host_ms")) for r in records(snapshot.analysis, "ranks")]
    told = [value for value in host_ms if value is not None]
    share = known(stall.get("share"))
    style = "warn" if share is not None and share >= 0.1 else "value"
    label: list[Span] = [("stall ", "dim"), (percent(share), style)]
    waits = max(told) if told else None
    for form in (ms, _short_ms):
        spans: list[Span] = [*label, (f" {form(stall.get('ms'))}", ""), ("  next() ", "dim")]
        spans.append((form(waits), ""))
        if row_width(spans) <= width:
            return fit(spans, width)
    return fit([*label, ("  next() ", "dim"), (_short_ms(waits), "")], width)


def _short_ms(value: object) -> str:
    number = known(value)
    return NA if number is None else f"{number:.1f} ms" if number < 9.95 else f"{number:.0f} ms"


def _ready(snapshot: Snapshot) -> list[int]:
    return [rank.ready for rank in snapshot.ranks if rank.ready is not None]


def _capacity(loader: Mapping[str, Any]) -> float | None:
    """Batches that the workers of a rank may prepare ahead."""
    workers, ahead = known(loader.get("workers")), known(loader.get("prefetch_factor"))
    return workers * ahead if workers and ahead else None


def _short_queue(snapshot: Snapshot, loader: Mapping[str, Any]) -> list[Span]:
    ready, capacity = _ready(snapshot), _capacity(loader)
    of = f"/{capacity:.0f}" if capacity else ""
    return [("queue ", "dim"), (f"{min(ready)}{of}" if ready else NA, "value")]


def _queue(view: View, snapshot: Snapshot, loader: Mapping[str, Any], width: int) -> list[Span]:
    """Batches that wait, on the rank that has fewest, of as many as the workers may prepare."""
    ready, capacity = _ready(snapshot), _capacity(loader)
    if known(loader.get("workers")) == 0:
        return [("queue ", "dim"), ("none: batches are made in the rank", "")]
    if not ready:
        return [("queue ", "dim"), (NA, "")]
    least = min(ready)
    bar = meter(ratio(least, capacity), max(4, min(16, width // 4)), view.glyphs, "bar")
    of = f" of {capacity:.0f}" if capacity else ""
    spans: list[Span] = [("queue ", "dim"), *(bar if capacity else [])]
    spans += [(f" {least}", "value"), (of + " ready", "dim")]
    if max(ready) != least and width >= 36:
        spans.append((f"  most {max(ready)}", "faint"))
    return spans


def _workers(snapshot: Snapshot, loader: Mapping[str, Any], width: int) -> list[Span]:
    """The workers' load on the rank whose workers are busiest."""
    number = known(loader.get("workers"))
    spans: list[Span] = [("workers ", "dim"), (count(number) if number is not None else NA, "")]
    busiest = max(snapshot.ranks, key=_load, default=None)
    loads = sorted(_loads(busiest), reverse=True) if busiest else []
    if not loads or busiest is None:
        return spans
    style = _load_style(loads)
    each = " ".join(f"{load:.0f}" for load in loads)
    if width < 40 or len(each) > width // 3:
        each = f"{loads[-1]:.0f}-{loads[0]:.0f}" if loads[0] - loads[-1] >= 1 else f"{loads[0]:.0f}"
    spans += [("  CPU ", "dim"), (each + " %", style)]
    if len(snapshot.ranks) > 1 and width >= 40:
        spans.append((f"  r{busiest.rank}", "faint"))
    return spans


def _loads(rank: Rank) -> Sequence[float]:
    values = [known(worker.get("cpu_percent")) for worker in records(rank.process, "workers")]
    return [value for value in values if value is not None]


def _load(rank: Rank) -> float:
    return sum(_loads(rank))


def _busiest(snapshot: Snapshot) -> Sequence[float]:
    """The workers' loads on the rank whose workers are busiest."""
    return _loads(max(snapshot.ranks, key=_load)) if snapshot.ranks else ()


def _load_style(loads: Sequence[float]) -> str:
    return "warn" if loads and min(loads) >= WORKER_FULL_PERCENT else ""


def _settings(loader: Mapping[str, Any], width: int) -> list[Row]:
    """The loader's settings as the rank found them, in as many lines as it takes."""
    if not loader:
        return [fit([("loader not recognised", "dim")], width)]
    first = child(loader, "first_batch")
    told: list[list[Span]] = [
        _pair("batch", count(loader.get("batch_size") or first.get("samples"))),
        _pair("prefetch", count(loader.get("prefetch_factor"))),
        _switch("pinned", loader.get("pin_memory")),
        _switch("persistent", loader.get("persistent_workers")),
        _pair("batches", count(loader.get("batches"))),
        _pair("bytes", size(first.get("bytes"))),
    ]
    rows: list[list[Span]] = [[]]
    for spans in told:
        if rows[-1] and row_width(rows[-1]) + 2 + row_width(spans) > width:
            rows.append([])
        rows[-1] += [("  ", ""), *spans] if rows[-1] else spans
    return [fit(row, width) for row in rows]


def _pair(name: str, value: str) -> list[Span]:
    return [(name + " ", "dim"), (value, "")]


def _switch(name: str, value: object) -> list[Span]:
    """A setting that is on or off, in words."""
    if value is True:
        return [(name, "")]
    return [(f"not {name}", "dim")] if value is False else [(f"{name} {NA}", "dim")]
