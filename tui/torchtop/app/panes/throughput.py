"""Throughput: samples and tokens a second, how far the run has come, and the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchtop.app.charts.bar import meter
from torchtop.app.charts.plot import Bucket, columns, nice_ceiling
from torchtop.app.charts.spark import spark
from torchtop.app.format import NA, count, duration, known, percent, quantity, rate
from torchtop.app.panes.parts import child, joined, ratio, records
from torchtop.app.text import Row, Span, clean, fit, row_width, spread
from torchtop.app.view import View
from torchtop.session.state import Snapshot

_BOTH_FROM = 44
"""Cells from which on the heading has room for the speed-up and the steps."""

_BASELINE_FROM = 6
"""Rows from which on the baseline is named."""

_SCALE_FROM = 4
"""Rows from which on the chart's top edge is labelled."""


def aside(view: View, width: int) -> list[Span]:
    """The speed-up against the baseline, and steps a second."""
    throughput = child(view.snapshot.analysis if view.snapshot else None, "throughput")
    steps = known(throughput.get("steps_per_s")) if _in_samples_or_tokens(throughput) else None
    found = _speed_up(view)
    parts: list[list[Span]] = []
    if found is not None:
        parts.append(
            [(f"{found[0]:.2f}x", "ok" if found[0] >= 1 else "warn"), (" baseline", "dim")]
        )
    if steps is not None and (not parts or width >= _BOTH_FROM):
        parts.append([(rate(steps), ""), (" steps/s", "dim")])
    return joined(parts)


def body(view: View, width: int, height: int) -> list[Row]:
    """The rate, its history, progress, loss."""
    snapshot = view.snapshot
    analysis = snapshot.analysis if snapshot else None
    if snapshot is None or not analysis:
        return [fit([("nothing measured yet", "dim")], width)][:height]
    none = "rate not known" if known(analysis.get("steps")) else "nothing measured yet"
    rows = [_rate(snapshot, width) or fit([(none, "dim")], width)]
    if height >= _BASELINE_FROM:
        rows += _baseline(view, snapshot, width)
    tail = [*_progress(view, snapshot, width), *_scalars(view, snapshot, width)]
    tail = tail[: max(0, height - 1)]
    room = height - len(rows) - len(tail)
    whole = _whole_run(view, snapshot, width, min(10, room // 2)) if room >= 12 else []
    if room - len(whole) >= 1:
        rows += _chart(view, snapshot, width, min(room - len(whole), 10))
    return (rows + tail + whole)[:height]


def _whole_run(view: View, snapshot: Snapshot, width: int, rows: int) -> list[Row]:
    """The mean of each minute since the start, as many as fit: what a day looked like."""
    rates = [_minute_rate(minute) for minute in snapshot.minutes]
    real = [value for value in rates if value is not None]
    if len(real) < 2 or rows < 4:
        return []
    per = -(-len(rates) // width)
    groups = [rates[i : i + per] for i in range(0, len(rates), per)]
    series = [_mean([v for v in group if v is not None]) for group in groups]
    told = f"the whole run, {per} minute{'s' if per > 1 else ''} a column"
    drawn = columns(
        series,
        width,
        rows - 2,
        nice_ceiling(max(real) * 1.05),
        glyphs=view.glyphs,
        style="chart.good",
        peak_style="chart.peak",
    )
    return [fit([], width), fit([(told, "faint")], width), *(fit(row, width) for row in drawn)]


def _minute_rate(minute: Mapping[str, Any]) -> float | None:
    """Samples (else tokens, else steps) a second of one minute."""
    begin, end = known(minute.get("from_ns")), known(minute.get("to_ns"))
    done = next(
        (v for key in ("samples", "tokens", "steps") if (v := known(minute.get(key)))), None
    )
    if begin is None or end is None or end <= begin or done is None:
        return None
    return done / (end - begin) * 1e9


def _mean(values: Sequence[float]) -> Bucket | None:
    return Bucket(sum(values) / len(values), max(values)) if values else None


def _speed_up(view: View) -> tuple[float, str, float] | None:
    """How many times as fast as the baseline, in which unit, and the baseline's value.

    None without a baseline, where it is this session, and where they have no unit in common.
    """
    base, snapshot = view.baseline, view.snapshot
    if base is None or snapshot is None or base.session == snapshot.meta.get("id"):
        return None
    return base.speed_up(child(snapshot.analysis, "throughput"))


def _baseline(view: View, snapshot: Snapshot, width: int) -> list[Row]:
    """The difference from the baseline, and what that is."""
    base = view.baseline
    if base is None:
        return []
    if base.session == snapshot.meta.get("id"):
        return [fit([("● ", "ok"), ("the baseline of its workload", "dim")], width)]
    name = clean(base.name, 60)
    found = _speed_up(view)
    if found is None:
        return [fit([("● ", "ok"), (f"baseline {name}", "dim")], width)]
    times, unit, then = found
    change = f"{times - 1:+.0%}".replace("%", " %") if times < 10 else f"{times:.0f}x"
    style = "ok" if times >= 1 else "warn"
    told = f" on {name}, {rate(then)} {unit}"
    return [fit([("● ", "ok"), (change, style), (told, "dim")], width)]


def _rate(snapshot: Snapshot, width: int) -> Row:
    """In the units that are known; empty where none is."""
    throughput = child(snapshot.analysis, "throughput")
    samples, tokens = (throughput.get(f"{name}_per_s") for name in ("samples", "tokens"))
    if not _in_samples_or_tokens(throughput):
        steps = throughput.get("steps_per_s")
        told = known(steps) is not None
        return fit([(rate(steps), "big"), (" steps/s", "dim")], width) if told else ()
    left: list[Span] = []
    if known(samples) is not None:
        left = [(rate(samples), "big"), (" samples/s", "dim")]
    right: list[Span] = []
    if known(tokens) is not None:
        right = [("  " if left else "", ""), (quantity(tokens), "big"), (" tokens/s", "dim")]
    elif (world := len(records(snapshot.analysis, "ranks"))) > 1:
        each = known(samples)
        if each is not None:
            right = [(rate(each / world), ""), (" a rank", "dim")]
    if not left:
        left, right = right, []
    alone: list[Span] = [("  each alone", "warn")] if _train_alone(snapshot) else []
    if row_width([*left, *right, *alone]) < width:
        right += alone
    return spread(left, right, width)


def _in_samples_or_tokens(throughput: Mapping[str, Any]) -> bool:
    """Whether a rate is known in more than steps, which then stand beside it."""
    return any(known(throughput.get(f"{name}_per_s")) is not None for name in ("samples", "tokens"))


def _train_alone(snapshot: Snapshot) -> bool:
    """Whether nothing is synchronised: then the sum over the ranks is of several models."""
    return any(e.get("kind") == "hint" and e.get("what") == "alone" for e in snapshot.events)


def _chart(view: View, snapshot: Snapshot, width: int, rows: int) -> list[Row]:
    """One column a second."""
    use_samples = any(point.samples_per_s is not None for point in snapshot.points)
    values = [
        point.samples_per_s if use_samples else point.tokens_per_s for point in snapshot.points
    ][-width:]
    real = [value for value in values if value is not None]
    if not real:
        return [fit([], width)] * rows
    if rows == 1:
        return [fit([(spark(values, width, view.glyphs, high=max(real)), "chart.good")], width)]
    high = nice_ceiling(max(real) * 1.05)
    series = [None if value is None else Bucket(value, value) for value in values]
    drawn = columns(
        series, width, rows, high, glyphs=view.glyphs, style="chart.good", peak_style="chart.peak"
    )
    chart = [fit(row, width) for row in drawn]
    if rows >= _SCALE_FROM and real[0] < high * (rows - 1) / rows:
        label = rate(high)
        chart[0] = fit([(label, "faint"), (" " * (width - len(label)), "")], width)
    return chart


def _progress(view: View, snapshot: Snapshot, width: int) -> list[Row]:
    """How far the run has come: what is known of it, which may be nothing."""
    analysis = snapshot.analysis
    progress = child(analysis, "progress")
    last = known(progress.get("step"))
    last = known((analysis or {}).get("step")) if last is None else last
    steps = None if last is None else last + 1  # steps are numbered from 0
    total = known(progress.get("total_steps"))
    left: list[Span] = [("step ", "dim"), (count(steps), "value")] if steps is not None else []
    if total is None:
        epoch = _epoch(snapshot, progress)
        return [spread(left, epoch, width)] if left or epoch else []
    if not left:
        return [fit([("of ", "dim"), (count(total), "value"), (" steps", "dim")], width)]
    left.append((f"/{count(total)}", "dim"))
    done, eta = ratio(steps, total), known(progress.get("eta_s"))
    right: list[Span] = []
    if snapshot.live and eta is not None:
        right = [("  ETA ", "dim"), (duration(eta), "value")]
    room = width - row_width(left) - row_width(right)
    share = f" {percent(done)}"
    if room >= len(share):
        right.insert(0, (share, "value"))
        room -= len(share)
    bar = min(40, room - 2)
    drawn = meter(done, bar if bar > 3 else 0, view.glyphs, "ok")
    return [spread([*left, (" ", ""), *drawn], right, width)]


def _epoch(snapshot: Snapshot, progress: Mapping[str, Any]) -> list[Span]:
    """Where in which epoch, of a run that has not told how long it will be."""
    epoch, batch = known(progress.get("epoch")), known(progress.get("epoch_batch"))
    if epoch is None or batch is None:
        return []
    batches, eta = known(progress.get("epoch_batches")), known(progress.get("epoch_eta_s"))
    of = "" if batches is None else f"/{count(batches)}"
    told: list[Span] = [("epoch ", "dim"), (count(epoch + 1), "value")]
    told += [(" batch ", "dim"), (count(batch), "value"), (of, "dim")]
    if snapshot.live and eta is not None:
        told += [("  ends in ", "dim"), (duration(eta), "value")]
    return told


def _scalars(view: View, snapshot: Snapshot, width: int) -> list[Row]:
    """The loss with its course, else the first scalar that the script logs."""
    scalars = child(snapshot.analysis, "scalars")
    names = sorted(scalars, key=lambda name: (name != "loss", *_rank(str(name)), str(name)))
    rows = []
    for name in names[:1]:
        value = known(scalars.get(name))
        text = NA if value is None else f"{value:.4g}"
        label: list[Span] = [(clean(name, 40) + " ", "dim"), (text, "value"), ("  ", "")]
        rest = width - sum(len(part) for part, _ in label)
        course = _course(snapshot, str(name))
        if len(course) > 1 and rest > 4:
            low = min(v for v in course if v is not None)
            label.append((spark(course, min(rest, 30), view.glyphs, low=low), "spark"))
        rows.append(fit(label, width))
    return rows


def _rank(name: str) -> tuple[bool, bool]:
    """Losses first, and those that the script logs before those that are only seen."""
    return "loss" not in name, "(backward" in name


def _course(snapshot: Snapshot, name: str) -> Sequence[float | None]:
    """A scalar over time: per second where it is kept, else per minute."""
    series = snapshot.scalar_series.get(name, ())
    if sum(value is not None for value in series) > 1:
        return series
    return [known(child(child(m, "scalars"), name).get("last")) for m in snapshot.minutes]
