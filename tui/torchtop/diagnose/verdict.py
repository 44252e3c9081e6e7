"""The verdict: what holds the run back, how much, why one may believe it, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """The fields of a ``verdict`` that do not depend on when it began."""

    kind: str
    severity: str
    share: float | None
    headline: str
    rank: int | None = None
    phase: str | None = None
    gain_bound: float | None = None
    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    cause: str | None = None
    """What is behind it, in a word, where several things can be."""
    brief: str = ""
    """What the headline says, in few words: for what is to follow it there."""
    of: str | None = None
    """The kind whose place a finding has taken, because it explains it."""

    def fields(self) -> dict[str, Any]:
        """As in a record."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "share": _rounded(self.share, 4),
            "rank": self.rank,
            "phase": self.phase,
            "cause": self.cause,
            "gain_bound": _rounded(self.gain_bound, 3),
            "headline": self.headline,
            "evidence": list(self.evidence),
            "advice": list(self.advice),
        }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def undecided(headline: str, *told: str | None, advice: tuple[str, ...] = ()) -> Verdict:
    """The verdict where the evidence does not decide."""
    evidence = tuple(text for text in told if text)
    return Verdict("UNDECIDED", "unknown", None, headline, evidence=evidence, advice=advice)
