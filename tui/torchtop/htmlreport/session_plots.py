"""The plots of one session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtop.htmlreport.colours import ink, line
from torchtop.htmlreport.draw import Axes, FuncFormatter, NullFormatter, drawing, legend, time_axis
from torchtop.htmlreport.gather import Gathered
from torchtop.htmlreport.markup import Markup, joined, plain
from torchtop.htmlreport.numbers import figure_of
from torchtop.htmlreport.series import POINTS, Series
from torchtop.session.records import PHASES
from torchtop.session.values import child, children, number

PHASE_NAMES = {phase: phase.replace("_", " ") for phase in PHASES}
_UNITS = {"samples_per_s": "samples/s", "tokens_per_s": "tokens/s", "steps_per_s": "steps/s"}
_MOST_LINES = 8
"""GPUs of which each has a line; of more the least, mean and largest are drawn."""

_MOST_RANKS = 16

_SEVERITIES = {"ok": "good", "note": "accent", "warn": "warn", "critical": "bad"}


@dataclass(frozen=True)
class Plot:
    """A drawing with its title and what has to be said about it."""

    title: str
    drawn: Markup
    note: str = ""


def plots(gathered: Gathered, summary: Mapping[str, Any]) -> Iterator[Plot]:
    """All that there is something to draw of."""
    made = (
        _throughput(gathered),
        _latency(gathered),
        _phases(gathered),
        _ranks(summary),
        _activity(gathered),
        _memory(gathered, summary),
        _power(gathered),
        _verdicts(gathered),
        *_scalars(gathered),
        _histogram(gathered),
        _cpu(gathered),
    )
    return (plot for plot in made if plot is not None)


def _throughput(gathered: Gathered) -> Plot | None:
    unit = next((u for u in _UNITS if gathered.rates.get(u)), None)
    if unit is None:
        return None
    series = gathered.rates[unit]

    def paint(axes: Axes) -> None:
        axes.plot(series.times, series.means(), color=ink("good"))
        _from_zero(axes, series.means())
        axes.set_ylabel(_UNITS[unit])
        time_axis(axes, gathered.length_s)

    told = f"{_UNITS[unit]} over time"
    return Plot("Throughput", drawing("throughput", told, paint), f"{_UNITS[unit]}, all ranks")


def _latency(gathered: Gathered) -> Plot | None:
    series = gathered.latency
    if not series:
        return None
    middle, high = series.quantiles(0.5), series.quantiles(0.95)
    # A first step of a minute, while kernels are compiled, must not flatten all that follow.
    most, top = max(_known(high)), 4 * _middle(high)

    def paint(axes: Axes) -> None:
        axes.fill_between(series.times, middle, high, color=ink("accent"), alpha=0.25, linewidth=0)
        axes.plot(series.times, high, color=ink("accent"), linewidth=0.7)
        axes.plot(series.times, middle, color=ink("accent"))
        _from_zero(axes, [min(most, top)])
        axes.set_ylabel("ms")
        time_axis(axes, gathered.length_s)

    note = f"median and 95th percentile of the steps within each {series.bucket_s:.3g} s"
    note += f"; cut off above, the highest is {figure_of(most)} ms" if most > top else ""
    return Plot("Step latency", drawing("latency", "step latency over time", paint), note)


def _phases(gathered: Gathered) -> Plot | None:
    known = {phase: gathered.phases[phase] for phase in PHASES if gathered.phases.get(phase)}
    if not known:
        return None
    base = max(known.values(), key=lambda series: len(series.times))
    rows = {phase: _on(series, base) for phase, series in known.items()}

    def paint(axes: Axes) -> None:
        below = [0.0] * len(base.times)
        for phase, row in rows.items():
            above = [low + value for low, value in zip(below, row, strict=True)]
            axes.fill_between(base.times, below, above, color=ink(phase), linewidth=0)
            below = above
        _from_zero(axes, below)
        axes.set_ylabel("ms a step")
        time_axis(axes, gathered.length_s)

    drawn = drawing("phases", "the phases of a step over time", paint)
    names = legend([(phase, PHASE_NAMES[phase]) for phase in known])
    note = "what the slowest rank at each point of the step adds"
    return Plot("Where a step's time goes", joined((names, drawn)), note)


def _on(series: Series, base: Series) -> list[float]:
    """A series at the times of another one; not a number where it has no value."""
    known = dict(zip(series.times, series.means(), strict=True))
    return [known.get(time, math.nan) for time in base.times]


def _ranks(summary: Mapping[str, Any]) -> Plot | None:
    """The phases of each rank as a stacked bar, and the frontier above them."""
    rows = [("the step", child(summary, "phases"))]
    ranks = children(summary, "ranks")
    if len(ranks) > 1:
        rows += [(f"rank {r.get('rank')}", child(r, "phases")) for r in ranks[:_MOST_RANKS]]
    times = [
        (plain(name, 20), {phase: number(child(told, phase).get("ms")) or 0.0 for phase in PHASES})
        for name, told in rows
    ]
    if not any(sum(phases.values()) for _, phases in times):
        return None

    def paint(axes: Axes) -> None:
        for place, (_, phases) in enumerate(times):
            left = 0.0
            for phase in PHASES:
                axes.barh(-place, phases[phase], left=left, height=0.72, color=ink(phase))
                left += phases[phase]
        axes.set_yticks([-i for i in range(len(times))], [name for name, _ in times])
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("ms a step, mean of the run")

    height = 60 + 22 * len(times)
    drawn = drawing("ranks", "the phases of a step on each rank", paint, height)
    names = legend([(phase, PHASE_NAMES[phase]) for phase in PHASES])
    left_out = len(ranks) - _MOST_RANKS
    note = f"{left_out} more ranks are not drawn" if left_out > 0 else ""
    return Plot("Ranks", joined((names, drawn)), note)


def _activity(gathered: Gathered) -> Plot | None:
    if any(gpu.get("sm_active") for gpu in gathered.gpus.values()):
        note = "share of the multiprocessors that work; unlike utilization it leaves waiting out"
        return _gpu_plot(gathered, "GPU activity", "sm_active", 100.0, "SM active, %", note, 100)
    note = "share of the time with a kernel on the GPU, one that waits for others too"
    return _gpu_plot(gathered, "GPU utilization", "util_percent", 1.0, "utilization, %", note, 100)


def _memory(gathered: Gathered, summary: Mapping[str, Any]) -> Plot | None:
    peaks = [number(rank.get("memory_peak_bytes")) for rank in children(summary, "ranks")]
    known = [peak for peak in peaks if peak is not None]
    note = f"the most that a rank's tensors took: {max(known) / 2**30:.3g} GiB" if known else ""
    return _gpu_plot(
        gathered, "GPU memory", "memory_used_bytes", 1 / 2**30, "used, GiB", note, None
    )


def _power(gathered: Gathered) -> Plot | None:
    return _gpu_plot(gathered, "Power", "power_w", 1.0, "W a GPU", "", None)


def _gpu_plot(
    gathered: Gathered,
    title: str,
    metric: str,
    factor: float,
    unit: str,
    note: str,
    most: float | None,
) -> Plot | None:
    """A metric of every GPU as a line, or of many GPUs as a band."""
    known = {name: gpu[metric] for name, gpu in gathered.gpus.items() if gpu.get(metric)}
    if not known:
        return None

    def paint(axes: Axes) -> None:
        if len(known) <= _MOST_LINES:
            for place, series in enumerate(known.values()):
                values = [value * factor for value in series.means()]
                axes.plot(series.times, values, color=ink(line(place)), alpha=0.9)
        else:
            _band(axes, list(known.values()), factor)
        axes.set_ylim(0, most)
        axes.set_ylabel(unit)
        time_axis(axes, gathered.length_s)

    drawn = drawing(metric.replace("_", ""), f"{title} over time", paint)
    if len(known) > _MOST_LINES:
        told = f"the mean of {len(known)} GPUs, and the range between the least and the most"
        return Plot(title, drawn, "; ".join(filter(None, (told, note))))
    names = legend([(line(place), name) for place, name in enumerate(known)])
    return Plot(title, joined((names, drawn)), note)


def _band(axes: Axes, many: Sequence[Series], factor: float) -> None:
    base = max(many, key=lambda series: len(series.times))
    rows = [_on(series, base) for series in many]
    columns = [
        [value * factor for value in _known(column)] or [math.nan]
        for column in zip(*rows, strict=True)
    ]
    low, high = [min(c) for c in columns], [max(c) for c in columns]
    axes.fill_between(base.times, low, high, color=ink("accent"), alpha=0.25, linewidth=0)
    axes.plot(base.times, [math.fsum(c) / len(c) for c in columns], color=ink("accent"))


def _verdicts(gathered: Gathered) -> Plot | None:
    kinds = list(dict.fromkeys(stretch.kind for stretch in gathered.verdicts))[:8]
    if not kinds:
        return None
    shortest = gathered.length_s / POINTS

    def paint(axes: Axes) -> None:
        drawn_to = dict.fromkeys(kinds, -shortest)
        for stretch in gathered.verdicts:
            if stretch.kind in kinds and stretch.end_s > drawn_to[stretch.kind]:
                drawn_to[stretch.kind] = max(stretch.end_s, stretch.start_s + shortest)
                colour = ink(_SEVERITIES.get(stretch.severity, "dim"))
                width = max(stretch.end_s - stretch.start_s, shortest)
                place = -kinds.index(stretch.kind)
                axes.barh(place, width, left=stretch.start_s, height=0.6, color=colour)
        names = [plain(kind, 24) for kind in kinds]
        axes.set_yticks([-i for i in range(len(kinds))], names)
        axes.set_ylim(-len(kinds) + 0.4, 0.6)
        axes.grid(visible=False, axis="y")
        time_axis(axes, gathered.length_s)

    drawn = drawing("verdicts", "verdicts over time", paint, 62 + 24 * len(kinds))
    severities = [("good", "healthy"), ("accent", "note"), ("warn", "warning")]
    names = legend([*severities, ("bad", "critical"), ("dim", "undecided")])
    return Plot("Verdicts", joined((names, drawn)))


def _scalars(gathered: Gathered) -> Iterator[Plot]:
    """The loss first, then what else the script logged."""
    names = sorted(gathered.scalars, key=lambda name: ("loss" not in name.lower(), name))
    for place, name in enumerate(names):
        steps, values = _thinned(gathered.scalars[name])
        if len(steps) > 1:
            yield _scalar(f"scalar{'abcd'[place % 4]}", name, steps, values)


def _scalar(key: str, name: str, steps: list[float], values: list[float]) -> Plot:
    logarithmic = min(values) > 0 and max(values) > 100 * min(values)

    def paint(axes: Axes) -> None:
        axes.plot(steps, values, color=ink("line5"))
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("step")

    shown = plain(name, 40)
    title = shown[:1].upper() + shown[1:]
    note = "as the script logged it" + (", on a logarithmic scale" if logarithmic else "")
    return Plot(title, drawing(key, f"{shown} by step", paint), note)


def _thinned(points: Sequence[tuple[int, float]]) -> tuple[list[float], list[float]]:
    """At most `POINTS` points: the means of as many neighbours as needed."""
    size = -(-len(points) // POINTS)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    steps = [math.fsum(step for step, _ in group) / len(group) for group in groups]
    return steps, [math.fsum(value for _, value in group) / len(group) for group in groups]


def _histogram(gathered: Gathered) -> Plot | None:
    if sum(count for _, count in gathered.latencies) < 20:
        return None
    edges, heights = _bars(gathered.latencies)

    def paint(axes: Axes) -> None:
        axes.stairs(heights, edges, fill=True, color=ink("accent"), alpha=0.8)
        axes.set_xlabel("ms a step")
        axes.set_ylabel("steps")

    total = sum(count for _, count in gathered.latencies)
    drawn = drawing("histogram", "how often a step took how long", paint)
    return Plot("Distribution of step latency", drawn, f"{total:,} recorded steps after warm-up")


def _bars(latencies: Sequence[tuple[float, int]]) -> tuple[list[float], list[float]]:
    """At most forty bars of equal width; the slowest thousandth is in the last one.

    None is narrower than the 1 % by which the recorded buckets grow.
    """
    total, seen, most = sum(count for _, count in latencies), 0, latencies[-1][0]
    for ms, count in latencies:
        seen += count
        if seen >= 0.999 * total:
            most = ms
            break
    least = latencies[0][0]
    width = max((most - least) / 40, 0.01 * most, 1e-6)
    bars = int((most - least) / width) + 2
    heights = [0.0] * bars
    for ms, count in latencies:
        heights[min(bars - 1, round((ms - least) / width))] += count
    return [least + (i - 0.5) * width for i in range(bars + 1)], heights


def _cpu(gathered: Gathered) -> Plot | None:
    known = {host: series for host, series in gathered.cpu.items() if series}
    if not known:
        return None

    def paint(axes: Axes) -> None:
        for place, series in enumerate(known.values()):
            axes.plot(series.times, series.means(), color=ink(line(place)))
        axes.set_ylim(0, 100)
        axes.set_ylabel("CPU, %")
        time_axis(axes, gathered.length_s)

    drawn = drawing("cpu", "CPU over time", paint)
    names = [(line(i), plain(host, 40)) for i, host in enumerate(known)][:_MOST_LINES]
    parts = (legend(names), drawn) if len(known) > 1 else (drawn,)
    return Plot("Host CPU", joined(parts), "all cores together")


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _middle(values: Sequence[float]) -> float:
    known = sorted(_known(values))
    return known[len(known) // 2] if known else 0.0


def _from_zero(axes: Axes, values: Sequence[float]) -> None:
    """A scale that begins at 0: half as high is half as much."""
    axes.set_ylim(0, max(_known(values), default=1.0) * 1.08 or 1.0)
