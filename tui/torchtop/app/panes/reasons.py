"""Under the verdict's headline: its evidence, what stands beside it, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtop.app.panes.parts import SEVERITIES, items, records
from torchtop.app.text import Row, Span, clean, cut_words, fit, row_width, wrap
from torchtop.session.state import Snapshot

_ROOMY = 6
"""Rows from which on all advice and all findings are told, and not the first alone."""

_LEAST_WITH_FINDINGS = 3
"""Rows below which findings stand in the pane's heading alone."""


@dataclass(frozen=True)
class Line:
    """A sentence behind a sign; where there is room it goes on in further rows."""

    sign: tuple[Span, ...]
    text: str
    style: str = ""

    def rows(self, width: int, most: int) -> list[Row]:
        """The sentence in at most `most` rows, cut between words."""
        indent = row_width(self.sign)
        cells = max(1, width - indent)
        lines = wrap(self.text, cells, most) if most > 1 else [cut_words(self.text, cells)]
        signs: list[tuple[Span, ...]] = [self.sign, *[((" " * indent, ""),)] * len(lines)]
        return [
            fit([*sign, (line, self.style)], width)
            for sign, line in zip(signs, lines or [""], strict=False)
        ]


def findings_of(snapshot: Snapshot | None) -> list[Mapping[str, Any]]:
    """What stands beside the verdict of the last analysis, the most severe first."""
    return records(snapshot.analysis if snapshot else None, "findings")


def short(findings: Sequence[Mapping[str, Any]]) -> list[Span]:
    """The first finding and the number of others, for a heading."""
    if not findings:
        return []
    symbol, style, kind = _named(findings[0])
    more = f" +{len(findings) - 1}" if len(findings) > 1 else ""
    return [(f"{symbol} {kind}{more}", style)]


def reasons(
    verdict: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], width: int, height: int
) -> list[Row]:
    """Evidence, findings and advice, each present however little space there is."""
    if height <= 0:
        return []
    evidence = [clean(text, 400) for text in items(verdict, "evidence")]
    advice = [clean(text, 400) for text in items(verdict, "advice")]
    if height == 1 and advice:
        evidence = []
    advice = advice[: 1 if height < _ROOMY else 3]
    beside = _beside(findings, height, height - len(advice) - min(1, len(evidence)))
    room = height - len(advice) - len(beside)
    if len(evidence) > room > 0:
        evidence = [*evidence[: room - 1], " · ".join(evidence[room - 1 :])]
    before = [_evidence(text) for text in evidence[: max(0, room)]]
    after = [_advice(text) for text in advice]
    full = [*before, *_in_detail(findings), *after]
    if sum(len(line.rows(width, height)) for line in full) <= height:
        return _flow(full, width, height)
    return _flow([*before, *beside, *after], width, height)


def _beside(findings: Sequence[Mapping[str, Any]], height: int, room: int) -> list[Line]:
    """As many findings as there is room for; the last says how many are left out."""
    if height < _LEAST_WITH_FINDINGS:
        return []
    shown = findings[: max(0, min(room, 1 if height < _ROOMY else len(findings)))]
    left_out = len(findings) - len(shown)
    return [
        _finding(finding, left_out if place == len(shown) else 0)
        for place, finding in enumerate(shown, 1)
    ]


def _in_detail(findings: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Each finding with its own evidence and advice."""
    told: list[Line] = []
    for finding in findings:
        told.append(_finding(finding))
        told += [_evidence(clean(text, 400), 2) for text in items(finding, "evidence")]
        told += [_advice(clean(text, 400), 2) for text in items(finding, "advice")]
    return told


def _flow(lines: Sequence[Line], width: int, height: int) -> list[Row]:
    """The lines, the first ones in as many rows as they need while each has at least one."""
    spare = height - len(lines)
    rows: list[Row] = []
    for line in lines:
        taken = line.rows(width, 1 + max(0, spare))
        spare -= len(taken) - 1
        rows += taken
    return rows[:height]


def _evidence(text: str, indent: int = 0) -> Line:
    return Line(((" " * indent + " · ", "dim"),), text, "dim")


def _advice(text: str, indent: int = 0) -> Line:
    return Line(((" " * indent + " → ", "accent"),), text)


def _finding(finding: Mapping[str, Any], left_out: int = 0) -> Line:
    symbol, style, kind = _named(finding)
    sign: list[Span] = [(f" {symbol} {kind}", style), ("  ", "")]
    if left_out:
        sign.insert(1, (f" +{left_out}", "dim"))
    return Line(tuple(sign), clean(finding.get("headline") or "", 400))


def _named(finding: Mapping[str, Any]) -> tuple[str, str, str]:
    symbol, _, style = SEVERITIES.get(str(finding.get("severity")), SEVERITIES["unknown"])
    return symbol, style, clean(finding.get("kind", ""), 40)
