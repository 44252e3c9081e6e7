"""How often ``torchtop compare`` is right, over thousands of simulated comparisons.

``PYTHONPATH=tui python tests/bench/noise.py [TRIALS]``: for each kind of run-to-run noise the share
of equal sides that are called equal, and of a slowdown of 5 % that is found.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence

from torchtop.session import noise

Draw = Callable[[random.Random], float]
"""One run's stray, in standard deviations or so."""


def heavy(rng: random.Random) -> float:
    """Student's t with three degrees of freedom: now and then a run is far off."""
    return rng.gauss(0, 1) / math.sqrt(sum(rng.gauss(0, 1) ** 2 for _ in range(3)))


def two_modes(rng: random.Random) -> float:
    """A fast and a slow placement, as of processes on NUMA nodes."""
    return (1 if rng.random() < 0.5 else -1) + rng.gauss(0, 0.1)


def now_and_then(rng: random.Random) -> float:
    """Quiet, but one run in five is slow."""
    return rng.gauss(0, 0.3) - 2.2 * (rng.random() < 0.2)


KINDS: dict[str, Draw] = {
    "normal": lambda rng: rng.gauss(0, 1),
    "heavy tails": heavy,
    "two modes": two_modes,
    "one in five slow": now_and_then,
}


def is_told(one: Sequence[float], two: Sequence[float]) -> bool:
    """Whether two sides are told to be different."""
    floor = noise.pooled([noise.of_repeats(one), noise.of_repeats(two)])
    found = noise.compare(one, two, floor)
    return found is not None and (found.p_value or 0.0) <= noise.SIGNIFICANCE


def main(trials: int) -> int:
    """Print a line a case."""
    print(f"{'noise':>6}  {'repeats':>7}  {'kind':16}  called equal  5 % found")
    for spread in (0.1, 0.003):
        for repeats in (5, 3):
            for name, draw in KINDS.items():
                rng = random.Random(1)

                def side(mean: float, d: Draw = draw, r: random.Random = rng) -> list[float]:
                    return [mean * math.exp(spread * d(r)) for _ in range(repeats)]  # noqa: B023

                equal = sum(not is_told(side(1.0), side(1.0)) for _ in range(trials)) / trials
                found = sum(is_told(side(1.0), side(0.95)) for _ in range(trials)) / trials
                print(f"{spread:6.1%}  {repeats:7}  {name:16}  {equal:12.2%}  {found:9.2%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
