"""Values over time, gathered into as many points as a plot can show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

POINTS = 240
"""Points of a line: a plot is 400 units wide, and more than one point in two of them is ink."""


@dataclass
class Series:
    """Values in time buckets of equal length.

    Args:
        length_s: the time that all buckets cover, from 0.
        points: how many there are at most; none is shorter than a second.
    """

    length_s: float
    points: int = POINTS
    _buckets: dict[int, list[float]] = field(default_factory=dict)

    @property
    def bucket_s(self) -> float:
        """How long a bucket is."""
        return max(1.0, self.length_s / self.points)

    def add(self, at_s: float, *values: float) -> None:
        """Take values in; what lies outside of the time is left out."""
        if values and 0 <= at_s <= self.length_s + 1:
            self._buckets.setdefault(int(at_s / self.bucket_s), []).extend(values)

    def __bool__(self) -> bool:
        return bool(self._buckets)

    @property
    def times(self) -> list[float]:
        """The middle of each bucket from the first to the last that has a value."""
        if not self._buckets:
            return []
        first, last = min(self._buckets), max(self._buckets)
        return [(place + 0.5) * self.bucket_s for place in range(first, last + 1)]

    def means(self) -> list[float]:
        """Each bucket's mean; not a number where it is empty."""
        return self._each(lambda values: math.fsum(values) / len(values))

    def quantiles(self, share: float) -> list[float]:
        """Each bucket's quantile (nearest rank)."""
        return self._each(lambda values: quantile(values, share))

    def _each(self, of: Callable[[Sequence[float]], float]) -> list[float]:
        if not self._buckets:
            return []
        first, last = min(self._buckets), max(self._buckets)
        found = (self._buckets.get(place) for place in range(first, last + 1))
        return [of(values) if values else math.nan for values in found]


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1 if share else 0)]
