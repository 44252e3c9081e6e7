"""The GPUs: a row each, with what the field looks at first at the left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchtop.app.charts.spark import spark
from torchtop.app.charts.table import GAP, Column, header, layout, record
from torchtop.app.format import NA, ghz, gib, known, short_size
from torchtop.app.panes import gpu_history, host
from torchtop.app.panes.parts import level_meter, ratio, records
from torchtop.app.text import Row, Span, clean, cut, fit
from torchtop.app.view import STALE_AFTER_S, View
from torchtop.session.state import Gpu, Snapshot

_PAIRED_FROM = 68
"""Cells from which on two GPUs fit into a row."""

HOT_C = 85.0
"""Data-centre boards slow down from the upper eighties on."""

_COLUMNS = (
    Column("rank", "rank", 4),
    Column("gpu", "GPU", 3, ">"),
    Column("name", "", 10, rank=9, stretch=1, most=24),
    Column("history", "SM active", 9, rank=5, stretch=4, most=64),
    Column("sm", "SM", 4, ">", rank=1),
    Column("util", "util", 4, ">"),
    Column("tensor", "tens", 4, ">", rank=4),
    Column("dram", "dram", 4, ">", rank=8),
    Column("bar", "memory", 6, rank=7, stretch=1, most=16),
    Column("memory", "GiB", 8, ">", rank=1),
    Column("power", "W", 7, ">", rank=2),
    Column("temp", "°C", 3, ">", rank=2),
    Column("clock", "GHz", 4, ">", rank=3),
    Column("link", "NVLink", 6, ">", rank=8),
    Column("note", "notes", 6, rank=3, stretch=2, most=28),
)
_PAIRED = (
    Column("rank", "rank", 4),
    Column("gpu", "GPU", 3, ">"),
    Column("util", "util", 4, ">"),
    Column("sm", "SM", 4, ">", rank=1),
    Column("used", "GiB", 4, ">"),
    Column("watt", "W", 4, ">", rank=2),
    Column("temp", "°C", 3, ">", rank=3),
)


def titles(view: View, width: int, height: int) -> list[Span]:
    """The column titles, for the pane's own heading where no row is left for them; else none."""
    gpus = view.snapshot.gpus if view.snapshot else ()
    if not gpus or height > len(gpus):
        return []
    if len(gpus) > height and width >= _PAIRED_FROM:
        if height > -(-len(gpus) // 2):
            return []
        half = (width - GAP) // 2
        placed = layout(_PAIRED, half)
        return [*header(placed, half), (" " * GAP, ""), *header(placed, half)]
    return list(header(layout(_columns(gpus), width), width))


def aside(view: View, width: int) -> list[Span]:
    """How many of what, and the driver."""
    snapshot = view.snapshot
    if snapshot is None or not snapshot.gpus:
        return []
    names = {clean(gpu.facts.get("name") or "GPU", 40) for gpu in snapshot.gpus}
    name = next(iter(names)) if len(names) == 1 else "GPUs"
    spans: list[Span] = [(f"{len(snapshot.gpus)} × {cut(name, 30)}", "")]
    watts = [known(gpu.now.get("power_w")) for gpu in snapshot.gpus]
    if width > 60 and all(value is not None for value in watts):
        spans += [(" · ", "faint"), (f"{sum(v or 0.0 for v in watts):.0f} W", "")]
    return spans


def body(view: View, width: int, height: int) -> list[Row]:
    """A row a GPU; in pairs where there are more GPUs than rows."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    if not snapshot.gpus:
        return _none(view, snapshot, width, height)
    gpus = snapshot.gpus
    if len(gpus) > height and width >= _PAIRED_FROM:
        return _pairs(view, snapshot, width, height)
    wanted = _columns(gpus)
    if gpu_history.rows_each(height, len(gpus)):
        wanted = [column for column in wanted if column.key != "history"]
    placed = layout(wanted, width)
    rows = [header(placed, width)] if height > len(gpus) else []
    shown = gpus[: height - len(rows)]
    sizes = {column.key: size for column, size in placed}
    each = gpu_history.rows_each(height, len(gpus))
    for gpu in shown:
        rows.append(record(placed, _cells(view, snapshot, gpu, sizes), width))
        if each:
            rows += [*gpu_history.chart(view, gpu, width, each), fit([], width)]
    return _more(rows, len(gpus) - len(shown), width)


def _more(rows: list[Row], hidden: int, width: int) -> list[Row]:
    if hidden > 0 and rows:
        rows[-1] = fit([(f"and {hidden + 1} more: zoom with z", "dim")], width)
    return rows


def _columns(gpus: Sequence[Gpu]) -> list[Column]:
    """Without columns that no GPU fills, or that say the same of each."""
    mixed = len({str(gpu.facts.get("name")) for gpu in gpus}) > 1
    unused = set() if mixed else {"name"}
    for key, metric in (
        ("sm", "sm_active"),
        ("tensor", "tensor_active"),
        ("dram", "dram_active"),
        ("link", "nvlink_tx_bytes_per_s"),
    ):
        if all(gpu.now.get(metric) is None for gpu in gpus):
            unused.add(key)
    return [column for column in _COLUMNS if column.key not in unused]


def _pairs(view: View, snapshot: Snapshot, width: int, height: int) -> list[Row]:
    """Two GPUs a row."""
    half = (width - GAP) // 2
    placed = layout(_PAIRED, half)
    sizes = {column.key: size for column, size in placed}
    rank_ = [record(placed, _cells(view, snapshot, gpu, sizes), half) for gpu in snapshot.gpus]
    lines = -(-len(rank_) // 2)
    head = height > lines
    blank = fit([], half)
    rows = [fit((*header(placed, half), ("  ", ""), *header(placed, half)), width)] if head else []
    space = min(lines, height - len(rows))
    for index in range(space):
        other = rank_[index + lines] if index + lines < len(rank_) else blank
        rows.append(fit((*rank_[index], ("  ", ""), *other), width))
    return _more(rows, 2 * (lines - space), width)


def _cells(
    view: View, snapshot: Snapshot, gpu: Gpu, sizes: Mapping[str, int]
) -> dict[str, list[Span]]:
    now, facts = gpu.now, gpu.facts
    stale = gpu.age_s > STALE_AFTER_S and (snapshot.live or view.idle)
    text = "faint" if stale else ""
    limit, total = facts.get("power_limit_w"), facts.get("memory_total_bytes")
    temperature = known(now.get("temperature_c"))
    hot = temperature is not None and temperature >= HOT_C
    return {
        "rank": [(_ranks(gpu.ranks), "accent" if gpu.ranks else "faint")],
        "gpu": [(str(gpu.index), "dim")],
        "name": [(clean(facts.get("name") or NA, 60), "dim")],
        "history": _history(view, gpu, sizes.get("history", 0)),
        "util": [(_whole(now.get("util_percent")), text)],
        "sm": [(_share(now.get("sm_active")), text or "value")],
        "tensor": [(_share(now.get("tensor_active")), text)],
        "dram": [(_share(now.get("dram_active")), text)],
        "bar": level_meter(now.get("memory_used_bytes"), total, sizes.get("bar", 0), view.glyphs),
        "memory": [(gib(now.get("memory_used_bytes")), text), ("/" + _short_gib(total), "dim")],
        "used": [(gib(now.get("memory_used_bytes")), text)],
        "power": [(_round(now.get("power_w")), text), ("/" + _round(limit), "dim")],
        "watt": [(_round(now.get("power_w")), text)],
        "temp": [(_round(temperature), "warn" if hot else text)],
        "clock": [(ghz(now.get("sm_clock_mhz")), text)],
        "link": [(_link(now), text)],
        "note": _note(snapshot, gpu, stale, sizes.get("note", 0)),
    }


def _ranks(ranks: Sequence[int]) -> str:
    return "r" + ",".join(map(str, ranks)) if ranks else NA


def _history(view: View, gpu: Gpu, cells: int) -> list[Span]:
    """SM activity where it is known, else utilization: the latter counts a spinning kernel."""
    series = gpu.series.get("sm_active", ())
    if any(value is not None for value in series[-cells:]):
        return [(spark(series, cells, view.glyphs, high=1.0), "spark")]
    return [(spark(gpu.series.get("util_percent", ()), cells, view.glyphs, high=100.0), "spark")]


_SHORT_REASONS = (
    ("thermal", "heat"),
    ("power_brake", "brake"),
    ("power", "power"),
    ("slowdown", "hw slow"),
    ("sync", "sync"),
)
"""A word in NVML's name of a clock event reason, and what is shown where space is short."""


def _note(snapshot: Snapshot, gpu: Gpu, stale: bool, cells: int) -> list[Span]:
    """What is out of the ordinary: old data, throttling, processes of others."""
    if stale:
        return [(f"{gpu.age_s:.0f} s old", "warn") if gpu.age_s < 1e6 else ("no data", "warn")]
    reasons = gpu.now.get("throttle")
    told: list[str] = []
    if isinstance(reasons, list) and reasons:
        names = [clean(reason, 30) for reason in reasons]
        long = ", ".join(name.replace("_", " ") for name in names)
        told.append(long if len(long) <= cells else ",".join(map(_short_reason, names)))
    ours = own_pids(snapshot)
    seen = [process for process in gpu.processes if isinstance(process, Mapping)]
    others = [process for process in seen if known(process.get("process_pid")) not in ours]
    if others and snapshot.status != "idle":
        used = short_size(sum(known(p.get("used_bytes")) or 0 for p in others))
        long = f"{len(others)} other: {used}"
        told.append(long if len(long) <= cells else f"+{used}")
    elif others:
        return [(clean(others[0].get("name") or "process", 40), "dim")]
    return [("  ".join(told), "warn")] if told else [(NA if reasons is None else "none", "faint")]


def _short_reason(name: str) -> str:
    return next((short for word, short in _SHORT_REASONS if word in name), name)


def own_pids(snapshot: Snapshot) -> set[int]:
    """Process ids that belong to this session."""
    pids = [e.get("process_pid") for e in snapshot.events if e.get("kind") == "process"]
    for rank in snapshot.ranks:
        pids += [rank.header.get("pid"), rank.process.get("process_pid")]
        pids += [worker.get("process_pid") for worker in records(rank.process, "workers")]
    return {pid for pid in pids if isinstance(pid, int)}


def _link(now: Mapping[str, Any]) -> str:
    values = [known(now.get(f"nvlink_{way}_bytes_per_s")) for way in ("tx", "rx")]
    return NA if None in values else short_size(sum(v or 0.0 for v in values))


def _whole(value: Any) -> str:
    number = known(value)
    return NA if number is None else f"{number:.0f}%"


def _share(value: Any) -> str:
    share = ratio(value, 1)
    return NA if share is None else f"{share * 100:.0f}%"


def _round(value: Any) -> str:
    number = known(value)
    return NA if number is None else f"{number:.0f}"


def _short_gib(value: Any) -> str:
    number = known(value)
    return NA if number is None else f"{number / 2**30:.0f}"


def _none(view: View, snapshot: Snapshot, width: int, height: int) -> list[Row]:
    """No GPU: why, and the host in its place."""
    error = next((h.nvml_error for h in snapshot.hosts if h.nvml_error), None)
    if not snapshot.hosts:
        return [fit([("no samples yet", "dim")], width)]
    why = clean(error, 200) if error else "none was found"
    rows = [fit([("no GPU: ", "value"), (why, "dim")], width)]
    return (rows + host.body(view, width, max(0, height - 1)))[:height]
