"""The noise floor: how much runs of a workload differ, taken from the sessions that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchtop.session import noise
from torchtop.session.load import Loaded, load_paths
from torchtop.session.measures import Measure
from torchtop.session.paths import SessionError, SessionPaths, sessions_root
from torchtop.session.sides import Side, configuration, kind_of_work
from torchtop.session.values import number

LEAST_STEPS = 20
"""Steps after the warm-up from which on a session's mean counts: as many as a verdict needs."""

MOST_SESSIONS = 500
"""Sessions that are looked at, the latest."""

ENOUGH = 2.0
"""Degrees of freedom from which on sessions of the same configuration are enough."""


@dataclass(frozen=True)
class Floor:
    """Noise, and where it is from in words."""

    noise: noise.Noise
    source: str


class History:
    """The sessions that are kept beside those of a comparison, read once when first needed.

    Args:
        sides: the comparison; its own sessions are none of the history.
    """

    def __init__(self, sides: Sequence[Side]) -> None:
        self._sides = sides
        self._runs: list[Loaded] | None = None

    @property
    def runs(self) -> list[Loaded]:
        """Ended sessions with enough steps, oldest first."""
        if self._runs is None:
            given = {run.paths.root.resolve() for side in self._sides for run in side.runs}
            roots = {sessions_root(), *(root.parent for root in given)}
            self._runs = _read(path for path in _latest(roots) if path.resolve() not in given)
        return self._runs

    def floor(self, measure: Measure) -> Floor | None:
        """The noise of one run, from the sides' own repeats and from earlier sessions.

        Earlier sessions of other options of the same workload (on as many of the same GPUs) are
        asked where those of the same configuration are too few.
        """
        own = [noise.of_repeats(values(measure, side.runs)) for side in self._sides]
        repeats = sum(part.runs for part in own if part)
        exact = {configuration(run) for side in self._sides for run in side.runs}
        like = self._groups(measure, lambda run: configuration(run) in exact)
        found = noise.pooled([*own, *like])
        others: list[noise.Noise] = []
        if found is None or found.freedom < ENOUGH:
            work = {kind_of_work(run) for side in self._sides for run in side.runs}
            others = self._groups(
                measure, lambda run: kind_of_work(run) in work and configuration(run) not in exact
            )
            found = noise.pooled([*own, *like, *others])
        if found is None:
            return None
        told = [
            f"{repeats} repeats here" if repeats else "",
            _told(like, "of the same configuration"),
            _told(others, "of this workload with other options"),
        ]
        return Floor(found, " and ".join(text for text in told if text))

    def _groups(self, measure: Measure, wanted: Callable[[Loaded], bool]) -> list[noise.Noise]:
        """The noise of each configuration that fits."""
        groups: dict[object, list[Loaded]] = {}
        for run in self.runs:
            if wanted(run):
                groups.setdefault(configuration(run), []).append(run)
        parts = (noise.of_history(values(measure, group)) for group in groups.values())
        return [part for part in parts if part]


def values(measure: Measure, runs: Iterable[Loaded]) -> list[float]:
    """A measure of each run that has it."""
    read = (measure.read(run.summary) for run in runs)
    return [value for value in read if value is not None]


def _told(parts: Sequence[noise.Noise], what: str) -> str:
    return f"{sum(part.runs for part in parts)} earlier sessions {what}" if parts else ""


def _latest(roots: Iterable[Path]) -> list[Path]:
    """The newest session directories in some folders: ids begin with their time."""
    found: set[Path] = set()
    for root in roots:
        try:
            found.update(p for p in root.iterdir() if (p / "summary.json").is_file())
        except OSError:
            continue
    return sorted(found, key=lambda path: path.name)[-MOST_SESSIONS:]


def _read(paths: Iterable[Path]) -> list[Loaded]:
    runs = []
    for path in paths:
        try:
            run = load_paths(SessionPaths(path))
        except SessionError:
            continue
        if not run.running and run.measured_steps >= LEAST_STEPS:
            runs.append(run)
    return sorted(runs, key=lambda run: number(run.meta.get("wall_s")) or 0.0)
