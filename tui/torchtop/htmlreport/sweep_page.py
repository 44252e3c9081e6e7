"""The report of a sweep."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from torchtop.htmlreport.markup import Content, Markup, joined, plain, table, tag
from torchtop.htmlreport.numbers import NA, figure_of, gib, percent
from torchtop.htmlreport.page import figure, page
from torchtop.session.values import child, children, items, number

Cell = Mapping[str, Any]

_VERSIONS = ("torch", "cuda", "cudnn", "nccl", "driver", "python", "gpu")


def sweep_report(sweep: Mapping[str, Any]) -> str:
    """A sweep (the contents of ``sweep.json``) as an HTML document."""
    from torchtop.htmlreport.sweep_plots import sweep_plots

    name = plain(f"Sweep of {sweep.get('workload') or 'an unknown workload'}")
    figures = [figure(plot.title, plot.drawn, plot.note) for plot in sweep_plots(sweep)]
    body: list[Content] = [*_head(sweep, name)]
    cells = children(sweep, "cells")
    asked = [cell for cell in cells if cell.get("role") != "reference"]
    body += [tag("h2", "Cells"), _cells(asked)]
    if problems := _problems(cells):
        body.append(problems)
    if figures:
        body += [tag("h2", "Plots"), tag("div", *figures, class_="plots")]
    body += [*_losses(asked)]
    references = [cell for cell in cells if cell.get("role") == "reference"]
    if references:
        body += [tag("h2", "References, measured to explain a loss"), _cells(references)]
    body += [tag("h2", "Versions"), _versions(cells)]
    return page(f"{name} – torchtop", body)


def _head(sweep: Mapping[str, Any], name: str) -> Iterator[Markup]:
    yield tag("h1", name)
    words = plain(shlex.join(str(word) for word in items(sweep, "command")), 600)
    if words:
        yield tag("p", tag("code", f"torchtop {words}"), class_="sub")
    when = f"{sweep.get('created_at') or 'start unknown'}, {sweep.get('status') or 'state unknown'}"
    yield tag("p", plain(f"{when}, on {sweep.get('host') or 'an unknown host'}", 300), class_="sub")
    progress = child(sweep, "progress")
    left = number(progress.get("runs_left"))
    if left:
        told = f"Not finished: {figure_of(progress.get('runs_done'))} runs done, up to "
        yield tag("p", f"{told}{figure_of(left)} to come.", class_="sub")
    settings = child(sweep, "settings")
    steps, repeats = figure_of(settings.get("steps")), figure_of(settings.get("repeats"))
    warmup = figure_of(settings.get("warmup"))
    measured = f"{steps} steps a run" if steps != NA else (
        f"{figure_of(settings.get('seconds'))} s a run"
    )  # fmt: skip
    runs = "one run a cell" if repeats == "1" else f"at most {repeats} runs a cell"
    told = f"{measured} after {warmup} steps of warm-up, {runs}"
    yield tag("p", told, class_="sub")
    fixed = child(sweep, "fixed")
    if fixed:
        shared = ", ".join(f"{key}={value}" for key, value in fixed.items())
        yield tag("p", plain(f"All cells: {shared}", 600), class_="sub")
    notes = [tag("li", plain(note, 500)) for note in items(sweep, "notes")]
    if notes:
        yield tag("div", tag("ul", *notes), class_="card note-level")


def _cells(cells: list[Cell]) -> Markup:
    scaled = any(cell.get("base") for cell in cells)
    speeds = ("speed-up", "ideal", "efficiency") if scaled else ("of the first",)
    head = ("cell", "verdict", "batch a device", "batch", "samples/s", "all runs", "step, ms",
            "p95, ms", *speeds, "J/1000 samples", "peak, GiB", "first steps, s")  # fmt: skip
    rows = [
        (
            plain(cell.get("label") or cell.get("id") or NA, 80),
            _verdict(cell),
            figure_of(cell.get("batch_per_gpu")),
            figure_of(cell.get("batch")),
            _rate(cell),
            _runs(cell),
            figure_of(child(cell, "step_ms").get("median")),
            figure_of(cell.get("p95_ms")),
            *(_scaling(cell) if scaled else (_times(cell.get("relative")),)),
            figure_of(cell.get("energy_j_per_1000_samples")),
            gib(cell.get("memory_peak_bytes")),
            figure_of(cell.get("first_steps_s"), 3),
        )
        for cell in cells
    ]
    return table(head, rows, text_columns=2)


def _scaling(cell: Cell) -> tuple[str, str, str]:
    """What more devices gave, and what they could have."""
    known = number(cell.get("speedup")) is not None
    ideal = _times(cell.get("ideal")) if known else NA
    return _times(cell.get("speedup")), ideal, percent(cell.get("efficiency"), 0)


def _verdict(cell: Cell) -> str:
    told = child(cell, "verdict")
    if not told:
        return NA if cell.get("status") == "measured" else plain(cell.get("status") or NA, 40)
    share = number(told.get("share"))
    return plain(told.get("kind") or NA, 40) + ("" if share is None else f" {share:.0%}")


def _rate(cell: Cell) -> str:
    samples = child(cell, "samples_per_s").get("median")
    if number(samples) is not None:
        return figure_of(samples)
    tokens = child(cell, "tokens_per_s").get("median")
    return NA if number(tokens) is None else f"{figure_of(tokens)} tokens/s"


def _runs(cell: Cell) -> str:
    """The range of the runs, and how many there were."""
    told = child(cell, "samples_per_s") or child(cell, "tokens_per_s")
    count = number(told.get("runs"))
    if count is None:
        return NA
    if count < 2:
        return "one run"
    return f"{figure_of(told.get('low'))} to {figure_of(told.get('high'))} ({count:g})"


def _times(value: Any) -> str:
    known = number(value)
    return NA if known is None else f"{known:.2f}x"


def _problems(cells: list[Cell]) -> Markup | None:
    """Why cells were skipped or failed."""
    told = [
        tag("li", plain(f"{cell.get('label') or cell.get('id')}: {cell.get('reason')}", 500))
        for cell in cells
        if cell.get("reason")
    ]
    return tag("div", tag("ul", *told), class_="card warn") if told else None


def _losses(cells: list[Cell]) -> Iterator[Markup]:
    """The waterfalls' numbers, with the reason for each part."""
    for cell in cells:
        loss = child(cell, "loss")
        parts = children(loss, "parts")
        if not parts:
            continue
        label = plain(cell.get("label") or cell.get("id") or NA, 80)
        yield tag("h2", f"What {label} loses")
        ideal = figure_of(loss.get("ideal_samples_per_s"))
        got = figure_of(loss.get("measured_samples_per_s"))
        lost = figure_of(loss.get("lost_points"), 3)
        yield tag("p", f"Ideal {ideal} samples/s, measured {got}: {lost} % of the ideal is lost.")
        rows = [
            (
                plain(part.get("label") or part.get("key") or NA, 80),
                plain(part.get("why") or "", 400),
                figure_of(part.get("points"), 3),
                figure_of(part.get("ms"), 3),
            )
            for part in parts
        ]
        yield table(("where it goes", "why", "points", "ms a step"), rows, text_columns=2)


def _versions(cells: list[Cell]) -> Markup:
    """Each set of versions once, with the cells that ran on it."""
    sets: dict[tuple[str, ...], list[str]] = {}
    for cell in cells:
        told = child(cell, "versions")
        if told:
            compiles = told.get("compile")
            known = NA if compiles is None else "yes" if compiles else "no"
            key = (*(plain(told.get(name) or NA, 60) for name in _VERSIONS), known)
            sets.setdefault(key, []).append(plain(cell.get("label") or cell.get("id") or NA, 60))
    rows = [(joined(names, ", "), *key) for key, names in sets.items()]
    return table(("cells", *_VERSIONS, "torch.compile"), rows, text_columns=9)
