"""When a run has gone on for as long as was asked for."""

from __future__ import annotations

from collections.abc import Callable

from torchtop.launch.spec import LaunchSpec

LEAST_MEASURED = 10
"""Steps after the warm-up, however long they take: as the built-in workloads measure."""

_STEPS_EVERY_S = 0.5
"""How often the steps are looked up: ranks write them down twice a second."""

Reached = tuple[str, str]
"""Why a run is stopped (``duration`` or ``steps``), and the option that asked for it."""


class Limits:
    """The limits of one run. A built-in workload counts for itself, and ends on the very step.

    Args:
        spec: what was asked for.
        last_step: the furthest step that any rank has written down, or None.
    """

    def __init__(self, spec: LaunchSpec, last_step: Callable[[], int | None]) -> None:
        self._spec = spec
        self._last_step = last_step
        self._by_step = spec.source != "builtin" and bool(spec.steps or spec.measured_s)
        self._next_s = 0.0
        self._warm_s: float | None = None

    def reached(self, started_s: float, now_s: float) -> Reached | None:
        """The limit that has been reached, or None.

        Args:
            started_s: when the run was started, in seconds of the monotonic clock.
            now_s: the same clock now.
        """
        limit_s = self._spec.duration_s
        if limit_s is not None and now_s - started_s >= limit_s:
            return "duration", "--duration"
        if not self._by_step or now_s < self._next_s:
            return None
        self._next_s = now_s + _STEPS_EVERY_S
        step = self._last_step() or 0
        if self._spec.steps and step >= self._spec.steps:
            return "steps", "--steps"
        if self._spec.measured_s and self._is_measured(step, self._spec.measured_s, now_s):
            return "duration", "--seconds"
        return None

    def _is_measured(self, step: int, measured_s: float, now_s: float) -> bool:
        """Whether the steps after the warm-up have taken so long, and are enough."""
        if step < self._spec.warmup:
            return False
        if self._warm_s is None:
            self._warm_s = now_s
        enough = step >= self._spec.warmup + LEAST_MEASURED
        return enough and now_s - self._warm_s >= measured_s
