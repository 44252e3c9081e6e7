"""The verdict: what holds the run back, in one sentence that can be checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchtop.app.charts.bar import meter
from torchtop.app.format import duration, gain, known, percent, rank_count
from torchtop.app.panes import failure, lost, silence
from torchtop.app.panes.parts import PHASE_NAMES, SEVERITIES, joined, verdict_of
from torchtop.app.panes.reasons import findings_of, reasons, short
from torchtop.app.text import Row, Span, clean, fit, pad, row_width, wrap
from torchtop.app.text import width as width_of
from torchtop.app.view import View
from torchtop.session.state import Snapshot

_TIGHT = 4
"""Rows up to which nothing is said twice."""

_ROOMY = 8
"""Rows from which on the headline may take three of them."""

WARM_UP_STEPS = 10
"""Steps that the analyst leaves out at the start (DESIGN section 6)."""


def aside(view: View, width: int) -> list[Span]:
    """What stands beside it, how long it has stood, and of when it is where that is not now."""
    snapshot = view.snapshot
    verdict = verdict_of(snapshot)
    if snapshot is not None and failure.failed(snapshot):
        return [("f", "key"), (" all of it", "dim")]
    if snapshot is None or not verdict:
        return []
    if snapshot.status == "starting" or _warming_up(snapshot):
        return []
    return joined([short(findings_of(snapshot)), _since(snapshot, verdict, view.stale_after_s)])


def _since(snapshot: Snapshot, verdict: Mapping[str, Any], stale_after_s: float) -> list[Span]:
    age = snapshot.analysis_age_s
    if snapshot.live and age is not None and age > stale_after_s:
        return [(f"as of {duration(age)} ago", "warn")]
    since = known(verdict.get("since_s"))
    return [("for ", "dim"), (duration(since), "")] if since is not None else []


def body(view: View, width: int, height: int) -> list[Row]:
    """The verdict's lines, the most important first."""
    snapshot = view.snapshot
    if snapshot is None:
        return [fit([("reading the session ...", "dim")], width)]
    if failure.failed(snapshot):
        return failure.card(snapshot, width, height)
    silent = silence.line(snapshot)
    rows = [fit(silent, width)] if silent else lost.lines(view, width)
    verdict = verdict_of(snapshot)
    if verdict and snapshot.status != "starting" and not _warming_up(snapshot):
        return rows + _verdict(view, verdict, width, height - len(rows))
    return [*rows, *(fit(row, width) for row in _before(snapshot))][:height]


def _verdict(view: View, verdict: Mapping[str, Any], width: int, height: int) -> list[Row]:
    """Headline, share and reasons; a long headline takes the place of evidence."""
    symbol, word, style = SEVERITIES.get(str(verdict.get("severity")), SEVERITIES["unknown"])
    kind = clean(verdict.get("kind", ""), 40)
    headline = clean(verdict.get("headline") or "", 400)
    label: list[Span] = [(f" {symbol} {word} ", f"chip.{style}"), ("  ", "")]
    share = _share(view, verdict, kind, style, width)
    if height <= _TIGHT and _told(verdict, headline):
        share = []
    kind = "" if share or kind == word else kind
    rows = _headline(label, (kind, style), headline, width, height)
    if share:
        rows.append(fit(share, width))
    beside = findings_of(view.snapshot)
    return (rows + reasons(verdict, beside, width, height - len(rows)))[:height]


def _headline(label: list[Span], kind: Span, headline: str, width: int, height: int) -> list[Row]:
    """The sentence beside its label; the kind stands before it, or under the label."""
    if kind[0] and row_width(label) + width_of(kind[0]) + 2 + width_of(headline) <= width:
        label, kind = [*label, kind, ("  ", "")], ("", "")
    most = 1 if height < 4 else 2 if height < _ROOMY else 3
    named = width_of(kind[0]) + 3 if kind[0] and most > 1 else 1
    indent = max(row_width(label), named)
    lines = wrap(headline, max(20, width - indent), most) or [""]
    hanging = indent
    if most > 1 and lines[-1].endswith("…"):  # too long for lines that begin below each other
        first = wrap(headline, max(20, width - indent), most + 1)[0]
        hanging, rest = named, " ".join(headline.split())[len(first) :]
        lines = [first, *wrap(rest, max(20, width - hanging), most - 1)]
    rows = [fit([*label, (" " * (indent - row_width(label)), ""), (lines[0], "value")], width)]
    for row, line in enumerate(lines[1:]):
        under = f" {kind[0]}" if row == 0 and kind[0] else ""
        rows.append(fit([(pad(under, hanging), kind[1]), (line, "value")], width))
    return rows


def _told(verdict: Mapping[str, Any], headline: str) -> bool:
    """Whether the headline says share and gain itself."""
    return all(
        told in headline
        for told in (percent(verdict.get("share")), gain(verdict.get("gain_bound")))
    )


def _share(view: View, verdict: Mapping[str, Any], kind: str, style: str, width: int) -> list[Span]:
    """The kind, its share of the step as a bar, and the bound of the gain."""
    share = known(verdict.get("share"))
    if share is None:
        return []
    bar = meter(share, max(8, min(40, width // 4)), view.glyphs, style)
    told: list[Span] = [(f" {kind} ", style), *bar, (" ", "")]
    told += [(percent(share), "value"), (" of step time", "dim")]
    for text, of in ((gain(verdict.get("gain_bound")), style), (_where(verdict), "")):
        if text and row_width(told) + 3 + width_of(text) <= width:
            told += [(" · ", "faint"), (text, of)]
    return told


def _where(verdict: Mapping[str, Any]) -> str:
    rank = verdict.get("rank")
    phase = str(verdict.get("phase") or "")
    phase = PHASE_NAMES.get(phase, phase)
    parts = [f"rank {rank}" if isinstance(rank, int) else "", clean(phase, 30)]
    return " in ".join(part for part in parts if part) if isinstance(rank, int) else ""


def _before(snapshot: Snapshot) -> list[list[Span]]:
    """What there is to say before the first verdict."""
    analysis = snapshot.analysis
    if snapshot.status == "lost":
        return []
    if not snapshot.live:
        return [[(" ended before the first verdict", "dim")]]
    if analysis and known(analysis.get("steps")):
        if _warming_up(snapshot):
            chip, told = _warm_up(snapshot)
            return [
                [(f" ○ {chip} ", "chip.note"), ("  " + told, "value")],
                [(" · the first steps and compilation are left out of every figure", "dim")],
            ]
        return [[(" ○ MEASURING ", "chip.note"), ("  not enough steps for a verdict yet", "value")]]
    return [[(" ○ STARTING ", "chip.note"), ("  " + starting(snapshot), "value")]]


def _warming_up(snapshot: Snapshot) -> bool:
    return (snapshot.analysis or {}).get("warming_up") is True


def _warm_up(snapshot: Snapshot) -> tuple[str, str]:
    """The stage of the warm-up and how far it is, in the analyst's words where there are any."""
    headline = clean(verdict_of(snapshot).get("headline") or "", 200)
    for stage in ("Warming up", "Measuring"):
        if headline.startswith(stage + ": "):
            return stage.upper(), headline.removeprefix(stage + ": ")
    steps = int(known((snapshot.analysis or {}).get("steps")) or 0)
    return "WARMING UP", headline or f"{min(steps, WARM_UP_STEPS)} of {WARM_UP_STEPS} steps"


def starting(snapshot: Snapshot) -> str:
    """How far a session has come before its first step."""
    world = known(snapshot.meta.get("nproc"))
    total = int(world) if world else None
    probed = [rank for rank in snapshot.ranks if "device" in rank.header]
    if probed:
        return f"{rank_count(len(probed), total)} in the first step"
    if snapshot.ranks:
        return f"{rank_count(len(snapshot.ranks), total)} up, waiting for the first backward"
    if snapshot.meta.get("source") == "command":
        return "the command runs, and nothing below it trains yet"
    spawned = [e for e in snapshot.events if e.get("kind") == "process"]
    if any(event.get("role") == "rank" for event in spawned):
        return "ranks started, importing torch"
    if any(event.get("role") == "agent" for event in spawned):
        return "torchrun started, waiting for its ranks"
    return "waiting for torchrun"
