"""One thing that `torchtop doctor` found, and how a list of them reads."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torchtop.launch.config_values import printable
from torchtop.session.records import SCHEMA

Status = Literal["ok", "info", "warn", "fail"]
"""From good to bad. ``info`` is neither: a fact of a machine that is as it is."""

_ORDER: tuple[Status, ...] = ("ok", "info", "warn", "fail")
_SYMBOLS = {"ok": "✓", "info": "·", "warn": "!", "fail": "✗"}
_ASCII_SYMBOLS = {"ok": "+", "info": ".", "warn": "!", "fail": "x"}


@dataclass(frozen=True)
class Finding:
    """One fact about the machine.

    Attributes:
        name: what was looked at.
        status: how it is.
        value: what was found, one line.
        advice: what to do, one line; empty when there is nothing to do.
    """

    name: str
    status: Status
    value: str
    advice: str = ""


def worst(findings: Sequence[Finding]) -> Status:
    """The worst status among them."""
    return max((finding.status for finding in findings), key=_ORDER.index, default="ok")


def render(findings: Sequence[Finding], *, ascii_only: bool | None = None) -> str:
    """The findings as aligned plain text that ends in a line of counts.

    Args:
        findings: in the order to show.
        ascii_only: no other characters; by default, whether standard output can show them.
    """
    if ascii_only is None:
        ascii_only = not _can_encode("".join(_SYMBOLS.values()))
    symbols = _ASCII_SYMBOLS if ascii_only else _SYMBOLS
    wide = max((len(finding.name) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{symbols[finding.status]} {finding.name:<{wide}}  {finding.value}")
        if finding.advice:
            lines.append(f"  {'':<{wide}}  {'->' if ascii_only else '→'} {finding.advice}")
    counts = Counter(finding.status for finding in findings)
    lines.append(f"{_counted(counts['fail'], 'problem')}, {_counted(counts['warn'], 'warning')}")
    lines = [printable(line) for line in lines]
    text = "\n".join(lines)
    return text.encode("ascii", "replace").decode("ascii") if ascii_only else text


def to_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """What ``torchtop doctor --json`` prints."""
    return {
        "schema": SCHEMA,
        "status": worst(findings),
        "findings": [asdict(finding) for finding in findings],
    }


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _can_encode(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
