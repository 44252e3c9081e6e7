"""The verdict: what holds the run back, in one sentence that can be checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchtop.app.charts.bar import meter
from torchtop.app.format import duration, gain, known, percent
from torchtop.app.panes import failure, silence
from torchtop.app.panes.parts import SEVERITIES, items, verdict_of
from torchtop.app.text import Row, Span, clean, fit, row_width, wrap
from torchtop.app.text import width as width_of
from torchtop.app.view import STALE_AFTER_S, View
from torchtop.session.state import Snapshot

_TIGHT = 4
"""Rows up to which nothing is said twice."""

WARM_UP_STEPS = 10
"""Steps that the analyst leaves out at the start (DESIGN section 6)."""


def aside(view: View, width: int) -> list[Span]:
    """How long the verdict has stood, and of when it is where that is not now."""
    snapshot = view.snapshot
    verdict = verdict_of(snapshot)
    if snapshot is None or not verdict or failure.failed(snapshot):
        return []
    if snapshot.status == "starting" or _warming_up(snapshot):
        return []
    age = snapshot.analysis_age_s
    if snapshot.live and age is not None and age > STALE_AFTER_S:
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
    rows = [fit(silent, width)] if silent else []
    verdict = verdict_of(snapshot)
    if verdict and snapshot.status != "starting" and not _warming_up(snapshot):
        return rows + _verdict(view, verdict, width, height - len(rows))
    return [*rows, *(fit(row, width) for row in _before(snapshot))][:height]


def _verdict(view: View, verdict: Mapping[str, Any], width: int, height: int) -> list[Row]:
    """Headline, share, evidence and advice; a long headline takes the place of evidence."""
    symbol, word, style = SEVERITIES.get(str(verdict.get("severity")), SEVERITIES["unknown"])
    kind = clean(verdict.get("kind", ""), 40)
    headline = clean(verdict.get("headline") or "", 400)
    label: list[Span] = [(f" {symbol} {word} ", f"chip.{style}"), ("  ", "")]
    share = _share(view, verdict, kind, style, width)
    if height <= _TIGHT and _told(verdict, headline):
        share = []
    if not share and kind != word and row_width(label) + len(kind) + 2 + len(headline) <= width:
        label += [(kind, style), ("  ", "")]
    indent = row_width(label)
    lines = wrap(headline, max(20, width - indent), 2 if height >= 4 else 1) or [kind]
    rows = [fit([*label, (lines[0], "value")], width)]
    rows += [fit([(" " * indent + line, "value")], width) for line in lines[1:]]
    if share:
        rows.append(fit(share, width))
    return (rows + _reasons(verdict, width, height - len(rows)))[:height]


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
    phase = str(verdict.get("phase") or "").replace("_", " ")
    parts = [f"rank {rank}" if isinstance(rank, int) else "", clean(phase, 30)]
    return " in ".join(part for part in parts if part) if isinstance(rank, int) else ""


def _reasons(verdict: Mapping[str, Any], width: int, height: int) -> list[Row]:
    """Evidence and advice, both present however little space there is."""
    evidence = [clean(text, 400) for text in items(verdict, "evidence")]
    advice = [clean(text, 400) for text in items(verdict, "advice")]
    if height <= 0:
        return []
    advice_rows = min(len(advice), 1 if height < 6 else 3)
    if height == 1:
        shown = advice[:1] or evidence[:1]
        return [_reason("→" if advice else "·", line, width) for line in shown]
    told: list[Row] = []
    room = height - advice_rows
    if len(evidence) > room > 0:
        evidence = [*evidence[: room - 1], " · ".join(evidence[room - 1 :])]
    told += [_reason("·", text, width) for text in evidence[:room]]
    return [*told, *(_reason("→", text, width) for text in advice[:advice_rows])]


def _reason(sign: str, text: str, width: int) -> Row:
    style = "accent" if sign == "→" else "dim"
    return fit([(f" {sign} ", style), (text, "" if sign == "→" else "dim")], width)


def _before(snapshot: Snapshot) -> list[list[Span]]:
    """What there is to say before the first verdict."""
    analysis = snapshot.analysis
    if snapshot.status == "lost":
        return [
            [(" ◆ LOST ", "chip.critical"), ("  the supervisor is gone and left no end", "value")],
            [(" · its ranks may still run; ", "dim"), ("torchtop stop", "key"), (" sweeps", "dim")],
        ]
    if not snapshot.live:
        return [[(" ended before the first verdict", "dim")]]
    if analysis and known(analysis.get("steps")):
        if _warming_up(snapshot):
            return [
                [(" ○ WARMING UP ", "chip.note"), ("  " + _warm_up(snapshot), "value")],
                [(" · the first steps and compilation are left out of every figure", "dim")],
            ]
        return [[(" ○ MEASURING ", "chip.note"), ("  not enough steps for a verdict yet", "value")]]
    return [[(" ○ STARTING ", "chip.note"), ("  " + starting(snapshot), "value")]]


def _warming_up(snapshot: Snapshot) -> bool:
    return (snapshot.analysis or {}).get("warming_up") is True


def _warm_up(snapshot: Snapshot) -> str:
    """How far the warm-up is, in the analyst's words where there are any."""
    headline = clean(verdict_of(snapshot).get("headline") or "", 200)
    if headline:
        return headline.removeprefix("Warming up: ")
    steps = int(known((snapshot.analysis or {}).get("steps")) or 0)
    return f"{min(steps, WARM_UP_STEPS)} of {WARM_UP_STEPS} steps"


def starting(snapshot: Snapshot) -> str:
    """How far a session has come before its first step."""
    world = known(snapshot.meta.get("nproc"))
    total = f" of {int(world)}" if world else ""
    probed = [rank for rank in snapshot.ranks if "device" in rank.header]
    if probed:
        return f"{len(probed)}{total} ranks in their first step"
    if snapshot.ranks:
        return f"{len(snapshot.ranks)}{total} ranks up, waiting for the first backward"
    spawned = [e for e in snapshot.events if e.get("kind") == "process"]
    if any(event.get("role") == "rank" for event in spawned):
        return "ranks started, importing torch"
    if any(event.get("role") == "agent" for event in spawned):
        return "torchrun started, waiting for its ranks"
    return "waiting for torchrun"
