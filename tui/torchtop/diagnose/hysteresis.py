"""What stands goes on standing until the evidence is clearly past it. Pure: state in, state out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from .thresholds import Thresholds


@dataclass(frozen=True)
class Held:
    """The verdict that stands."""

    kind: str
    rank: int | None
    phase: str | None
    severity: str
    since_ns: int
    from_step: int | None
    of: str | None = None
    """The kind that it explains, where it stands in the place of another verdict."""

    def is_same(self, kind: str, rank: int | None) -> bool:
        """Whether a verdict of this kind and rank goes on with this one.

        Which host is the slowest changes when all are too slow, so for LAUNCH any rank will do.
        """
        return kind in (self.kind, self.of) and (self.rank == rank or kind == "LAUNCH")


class Ranked(Protocol):
    """What a choice is made between."""

    @property
    def kind(self) -> str:
        """One of VERDICTS."""

    @property
    def share(self) -> float:
        """0..1 of the step."""

    @property
    def rank(self) -> int | None:
        """The rank to blame, if one is."""


C = TypeVar("C", bound=Ranked)


def severity(share: float, held: str | None, limits: Thresholds) -> str | None:
    """The severity of a share, given the one that stands; None when silent."""
    if share >= limits.critical or (held == "critical" and share >= limits.leave_critical):
        return "critical"
    if share >= limits.warn or (held in ("warn", "critical") and share >= limits.leave_warn):
        return "warn"
    if share >= limits.note or (held == "note" and share >= limits.leave_note):
        return "note"
    return None


def choose(ranked: Sequence[C], held: Held | None, limits: Thresholds) -> tuple[C, str] | None:
    """The candidate that has the headline, with its severity; None when all are silent.

    Args:
        ranked: candidates, largest first.
        held: the verdict that stands.
        limits: thresholds.
    """
    if not ranked:
        return None
    best = ranked[0]
    best_severity = severity(best.share, _severity_of(best, held), limits)
    standing = next((c for c in ranked if held and held.is_same(c.kind, c.rank)), None)
    if standing is not None and held is not None and standing is not best:
        stands = severity(standing.share, held.severity, limits)
        if (
            stands is not None
            and standing.share > limits.tie * best.share
            and _is_bottleneck(stands) >= _is_bottleneck(best_severity)
        ):
            return standing, stands
    return None if best_severity is None else (best, best_severity)


def _severity_of(candidate: Ranked, held: Held | None) -> str | None:
    same = held is not None and held.is_same(candidate.kind, candidate.rank)
    return held.severity if held is not None and same else None


def _is_bottleneck(level: str | None) -> bool:
    return level in ("warn", "critical")
