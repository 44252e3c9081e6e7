"""Limits on a comparison, for a build that is to fail when training has become slower."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchtop.session import noise
from torchtop.session.compare import Comparison, Finding
from torchtop.session.measures import keys
from torchtop.session.paths import SessionError
from torchtop.session.sides import Side


@dataclass(frozen=True)
class Limit:
    """A condition under which a comparison fails, as in ``throughput<-5%``."""

    text: str
    key: str
    sign: str
    bound: float
    percent: bool


@dataclass(frozen=True)
class Breach:
    """What became of a limit on one side.

    Attributes:
        limit: the condition.
        side: the side it was tried on.
        failed: whether it holds, so that the comparison fails.
        why: one sentence.
    """

    limit: Limit
    side: Side
    failed: bool
    why: str


_LIMIT = re.compile(r"\s*([a-z0-9_]+)\s*([<>])\s*([-+]?\d+(?:\.\d+)?)\s*(%?)\s*")


def parse_limit(text: str) -> Limit:
    """A condition from the command line.

    Raises:
        SessionError: it makes no sense.
    """
    found = _LIMIT.fullmatch(text)
    if not found:
        raise SessionError(
            f"--fail-if {text!r}: write a figure, < or >, and a change, as in throughput<-5%"
        )
    key, sign, bound, percent = found.groups()
    if key not in keys():
        raise SessionError(f"--fail-if {text!r}: no figure {key}; there are {', '.join(keys())}")
    return Limit(text.strip(), key, sign, float(bound), bool(percent))


def judge(comparison: Comparison, limit: Limit) -> list[Breach]:
    """Try a limit on every side but the first.

    It fails where the measured change is beyond the limit and exceeds the noise. Where nothing is
    known of the noise, or too little to see such changes, the measured change alone decides, and
    where a figure is missing it fails: a check that could not be made has not passed.
    """
    row = comparison.row(limit.key)
    base = row.values[0]
    return [
        _judge(limit, finding, base, value)
        for finding, value in zip(row.findings, row.values[1:], strict=True)
    ]


def _judge(limit: Limit, finding: Finding, base: float | None, value: float | None) -> Breach:
    if base is None or value is None or (limit.percent and finding.difference is None):
        return Breach(limit, finding.side, True, f"{limit.key} was not measured on both sides")
    if limit.percent and finding.difference:
        change, told = finding.difference.relative * 100, "%"
    else:
        change, told = value - base, ""
    beyond = change < limit.bound if limit.sign == "<" else change > limit.bound
    p_value = finding.difference.p_value if finding.difference else None
    measured = f"{limit.key} changed by {change:+.3g}{told}"
    if not beyond:
        return Breach(limit, finding.side, False, measured)
    if p_value is None:
        return Breach(limit, finding.side, True, f"{measured} (the noise is not known)")
    if p_value > noise.SIGNIFICANCE and finding.difference and finding.difference.blind:
        return Breach(
            limit, finding.side, True, f"{measured} (too few runs, or too much noise, to tell)"
        )
    if p_value > noise.SIGNIFICANCE:
        return Breach(limit, finding.side, False, f"{measured}, which is within the noise")
    return Breach(limit, finding.side, True, measured)


def breaches_json(breaches: Sequence[Breach]) -> dict[str, Any]:
    """What became of the limits, for programs."""
    return {
        "fail_if": [
            {"condition": b.limit.text, "side": b.side.letter, "failed": b.failed, "why": b.why}
            for b in breaches
        ],
        "failed": any(breach.failed for breach in breaches),
    }
