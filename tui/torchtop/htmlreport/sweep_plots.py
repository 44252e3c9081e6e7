"""The plots of a sweep: scaling against the ideal, cells side by side, and what is lost where."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchtop.htmlreport.colours import ink, line
from torchtop.htmlreport.draw import Axes, drawing, legend
from torchtop.htmlreport.markup import joined, plain
from torchtop.htmlreport.numbers import figure_of
from torchtop.htmlreport.session_plots import PHASE_NAMES, Plot
from torchtop.session.records import PHASES
from torchtop.session.values import child, children, number

Cell = Mapping[str, Any]

_DEVICE_AXES = ("gpus", "nproc")
_MOST_CELLS = 24
_MOST_LINES = 8

_PART_COLOURS = {
    "exposed_comm": "exposed_comm",
    "straggler": "warn",
    "data": "data",
    "small_batch": "backward",
    "launch": "forward",
    "comm_beside": "exposed_comm",
    "replication": "pre_optimizer",
    "shared_cores": "line6",
}


def sweep_plots(sweep: Mapping[str, Any]) -> Iterator[Plot]:
    """All that there is something to draw of."""
    asked = [cell for cell in measured(sweep) if cell.get("role") != "reference"]
    made = (_scaling(asked), _throughput(asked), _phases(asked), _energy(asked))
    yield from (plot for plot in made if plot is not None)
    labels = {str(c.get("id")): str(c.get("label") or c.get("id")) for c in measured(sweep)}
    for place, cell in enumerate(cell for cell in asked if children(child(cell, "loss"), "parts")):
        base = labels.get(str(child(cell, "loss").get("base")), "")
        if place < _MOST_CELLS and (plot := _waterfall(f"loss{place}", cell, base)):
            yield plot


def measured(sweep: Mapping[str, Any]) -> list[Cell]:
    """The cells that have a throughput."""
    return [cell for cell in children(sweep, "cells") if speed(cell) is not None]


def speed(cell: Cell) -> float | None:
    """Its throughput: samples, else tokens a second."""
    for name in ("samples_per_s", "tokens_per_s"):
        value = number(child(cell, name).get("median"))
        if value is not None:
            return value
    return None


def unit(cells: Sequence[Cell]) -> str:
    """What `speed` counts."""
    counted = any(number(child(c, "samples_per_s").get("median")) is not None for c in cells)
    return "samples/s" if counted else "tokens/s"


def span(cell: Cell) -> tuple[float, float]:
    """How far the lowest and the highest run lie from the median."""
    told = child(cell, "samples_per_s") or child(cell, "tokens_per_s")
    middle = speed(cell) or 0.0
    low, high = (number(told.get(name)) for name in ("low", "high"))
    return max(0.0, middle - (low or middle)), max(0.0, (high or middle) - middle)


def _others(cell: Cell) -> str:
    """The axes of a cell but the number of devices: cells that share them are one curve."""
    told = {k: v for k, v in child(cell, "axes").items() if k not in _DEVICE_AXES}
    torch = child(cell, "versions").get("torch")
    if "python" in told and torch:  # what an interpreter is there for
        told["torch"] = torch
        del told["python"]
    return ", ".join(f"{name}={value}" for name, value in told.items())


def _scaling(cells: Sequence[Cell]) -> Plot | None:
    """Throughput over devices, with the line on which nothing is lost."""
    curves: dict[str, list[Cell]] = {}
    for cell in cells:
        if number(cell.get("gpus")) is not None:
            curves.setdefault(_others(cell), []).append(cell)
    curves = {name: curve for name, curve in curves.items() if _counts(curve) > 1}
    if not curves:
        return None
    shown = list(curves.items())[:_MOST_LINES]

    def paint(axes: Axes) -> None:
        for place, (_, curve) in enumerate(shown):
            _curve(axes, curve, ink(line(place)))
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        counts = sorted({number(cell.get("gpus")) or 0 for cell in cells})
        axes.set_xticks(counts, [f"{count:g}" for count in counts])
        axes.set_xlabel("devices")
        axes.set_ylabel(unit(cells))

    drawn = drawing("scaling", "throughput by number of devices, and the ideal", paint, 230)
    names = [(line(place), plain(name or "measured", 60)) for place, (name, _) in enumerate(shown)]
    note = "dashed: the ideal, as many times the fewest devices' throughput; bars: all runs"
    return Plot("Scaling", joined((legend(names), drawn)), note)


def _counts(curve: Sequence[Cell]) -> int:
    return len({cell.get("gpus") for cell in curve})


def _curve(axes: Axes, curve: Sequence[Cell], colour: str) -> None:
    points = sorted((number(cell.get("gpus")) or 0.0, speed(cell) or 0.0, span(cell))
                    for cell in curve)  # fmt: skip
    counts, speeds = [point[0] for point in points], [point[1] for point in points]
    each = speeds[0] / counts[0] if counts[0] else 0.0
    axes.plot([0, counts[-1]], [0, each * counts[-1]], color=colour, linewidth=1, dashes=(4, 3))
    low, high = zip(*(point[2] for point in points), strict=True)
    axes.errorbar(counts, speeds, yerr=[low, high], color=colour, marker="o", markersize=4,
                  capsize=3, elinewidth=1)  # fmt: skip


def _rows(axes: Axes, cells: Sequence[Cell]) -> None:
    """A row a cell, the first on top."""
    names = [plain(cell.get("label") or cell.get("id") or "?", 34) for cell in cells]
    axes.set_yticks([-i for i in range(len(cells))], names)
    axes.set_ylim(-len(cells) + 0.4, 0.6)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")


def _height(rows: int) -> int:
    return 56 + 24 * rows


def _throughput(cells: Sequence[Cell]) -> Plot | None:
    shown = cells[:_MOST_CELLS]
    if not shown:
        return None

    def paint(axes: Axes) -> None:
        for place, cell in enumerate(shown):
            value, (low, high) = speed(cell) or 0.0, span(cell)
            axes.barh(-place, value, height=0.66, color=ink("good"), alpha=0.75)
            axes.errorbar([value], [-place], xerr=[[low], [high]], color=ink("text"),
                          elinewidth=1, capsize=2.5)  # fmt: skip
            _beside(axes, figure_of(value), value + high, -place, right=True)
        _rows(axes, shown)
        axes.margins(x=0.16)
        axes.set_xlabel(unit(cells))

    drawn = drawing("cells", "throughput of each cell", paint, _height(len(shown)))
    return Plot("Throughput", drawn, _cut("median of the runs; the bar spans all of them", cells))


def _cut(note: str, cells: Sequence[Cell]) -> str:
    left_out = len(cells) - _MOST_CELLS
    return f"{note}; {left_out} more cells are in the table" if left_out > 0 else note


def _phases(cells: Sequence[Cell]) -> Plot | None:
    shown = [cell for cell in cells if child(cell, "phases")][:_MOST_CELLS]
    if not shown:
        return None

    def paint(axes: Axes) -> None:
        for place, cell in enumerate(shown):
            left = 0.0
            for phase in PHASES:
                ms = number(child(cell, "phases").get(phase)) or 0.0
                axes.barh(-place, ms, left=left, height=0.72, color=ink(phase))
                left += ms
        _rows(axes, shown)
        axes.set_xlabel("ms a step")

    drawn = drawing("phases", "the phases of a step in each cell", paint, _height(len(shown)))
    names = legend([(phase, PHASE_NAMES[phase]) for phase in PHASES])
    return Plot("Where a step's time goes", joined((names, drawn)))


def _energy(cells: Sequence[Cell]) -> Plot | None:
    key = "energy_j_per_1000_samples"
    shown = [cell for cell in cells if number(cell.get(key)) is not None][:_MOST_CELLS]
    if not shown:
        return None

    def paint(axes: Axes) -> None:
        values = [number(cell.get(key)) or 0.0 for cell in shown]
        axes.barh([-i for i in range(len(shown))], values, height=0.66, color=ink("line4"))
        _rows(axes, shown)
        axes.set_xlabel("J for 1000 samples")

    drawn = drawing("energy", "energy for 1000 samples in each cell", paint, _height(len(shown)))
    return Plot("Energy", drawn, "of the GPUs in use, from their power during the measured steps")


def _waterfall(key: str, cell: Cell, base: str) -> Plot | None:
    """From the ideal throughput to the measured one, a bar a cause; a gain goes back up."""
    told = children(child(cell, "loss"), "parts")
    parts = [part for part in told if number(part.get("points")) is not None]
    if not parts:
        return None

    def paint(axes: Axes) -> None:
        axes.barh(0, 100, height=0.66, color=ink("dim"), alpha=0.5)
        left = 100.0
        for place, part in enumerate(parts, 1):
            points = number(part.get("points")) or 0.0
            colour = "good" if points < 0 else _PART_COLOURS.get(str(part.get("key")), "other")
            axes.barh(-place, -points, left=left, height=0.66, color=ink(colour))
            axes.plot([left, left], [-place + 0.33, -place + 1], color=ink("dim"), linewidth=0.6)
            low, high = sorted((left, left - points))
            right = low < 15 and high < 85  # no room for it at the left
            change = f"{-points:+.1f}" if abs(points) >= 0.05 else "0.0"
            _beside(axes, change, high if right else low, -place, right)
            left -= points
        axes.barh(-len(parts) - 1, left, height=0.66, color=ink("good"), alpha=0.75)
        _beside(axes, f"{left:.1f} %", left, -len(parts) - 1, right=True)
        names = [plain(part.get("label") or part.get("key"), 34) for part in parts]
        axes.set_yticks([-i for i in range(len(parts) + 2)], ["ideal", *names, "measured"])
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        _zoom(axes, left)

    label = plain(cell.get("label") or cell.get("id") or "?", 60)
    height = _height(len(parts) + 2)
    drawn = drawing(key, f"what {label} loses against the ideal", paint, height)
    note = f"against {plain(base, 60)}, times as many devices" if base else ""
    return Plot(f"What is lost: {label}", drawn, note)


def _zoom(axes: Axes, measured_percent: float) -> None:
    """From 0 on; where little is lost, the part in which it is, and the axis says so."""
    lost = 100 - measured_percent
    begin = 0.0
    if 0 < lost < 25:
        begin = 5.0 * math.floor(max(0.0, measured_percent - 2 * max(lost, 4)) / 5)
    axes.set_xlim(min(begin, measured_percent), 100 + 0.04 * (100 - begin))
    axes.set_xlabel(f"% of the ideal throughput{f', from {begin:g} on' if begin else ''}")


def _beside(axes: Axes, told: str, end: float, row: int, right: bool = False) -> None:
    """A bar's value beside its end."""
    axes.annotate(
        told,
        (end, row),
        (4 if right else -4, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        va="center",
        color=ink("text"),
    )
