"""A possible bottleneck, and the upper bound of what removing it gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .hysteresis import Held
from .thresholds import Thresholds


@dataclass(frozen=True)
class Candidate:
    """A possible bottleneck; shares are 0..1 of the step."""

    kind: str
    share: float
    rank: int | None = None
    phase: str | None = None
    removable: float | None = None
    """The share that would go away with the cause, at the most; None where not known."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The share by phase, where it has several."""
    cause: str | None = None
    """What is behind it, where that is known: a word of the module that finds it."""
    sure: bool = True
    """Whether the share is known, and not only that there is one."""

    @property
    def gain_bound(self) -> float | None:
        """Upper bound of the speed-up, 1 / (1 - removable).

        What goes away with a cause is what nothing else would then take: the functions that make
        candidates say for each kind what is left.
        """
        return None if self.removable is None else 1 / (1 - min(self.removable, 0.99))


def sticky_phase(
    parts: Mapping[str, float], kind: str, held: Held | None, limits: Thresholds
) -> str:
    """The phase with the largest part; the one that stands, while it is a tie."""
    best = max(parts, key=lambda name: parts[name])
    stands = held.phase if held is not None and held.kind == kind else None
    if stands is not None and parts.get(stands, 0.0) > limits.tie * parts[best]:
        return stands
    return best
