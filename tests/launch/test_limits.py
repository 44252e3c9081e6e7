"""When a run has gone on for long enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from torchtop.launch.limits import LEAST_MEASURED, Limits
from torchtop.launch.spec import LaunchSpec

SPEC = LaunchSpec(name="n", workload="train.py", source="script", target="train.py")


def steps_at(pace: float) -> tuple[Callable[[float], None], Callable[[], int | None]]:
    """A run that makes so many steps a second from its fifth second: how to move its time."""
    now = [0.0]

    def move(to_s: float) -> None:
        now[0] = to_s

    def last_step() -> int | None:
        return int((now[0] - 5) * pace) if now[0] >= 5 else None

    return move, last_step


def ended_at(spec: LaunchSpec, pace: float = 10.0) -> tuple[float, tuple[str, str]] | None:
    """When the supervisor would have stopped a run, in seconds after its start, and why."""
    move, last_step = steps_at(pace)
    limits = Limits(spec, last_step)
    for tick in range(4000):
        move(tick / 4)
        if (reached := limits.reached(0.0, tick / 4)) is not None:
            return tick / 4, reached
    return None


@pytest.mark.parametrize(
    ("changed", "pace", "ended"),
    [
        ({"duration_s": 30.0}, 10.0, (30.0, ("duration", "--duration"))),
        ({"steps": 100}, 10.0, (15.0, ("steps", "--steps"))),
        # 20 steps of warm-up end after 2 s of training, which began at 5 s
        ({"measured_s": 10.0, "warmup": 20}, 10.0, (17.0, ("duration", "--seconds"))),
        # of steps that take 5 s each, it has to be some
        ({"measured_s": 10.0, "warmup": 2}, 0.2, (65.0, ("duration", "--seconds"))),
        ({}, 10.0, None),
        # these count for themselves
        ({"steps": 100, "source": "builtin"}, 10.0, None),
        ({"measured_s": 10.0, "source": "builtin"}, 10.0, None),
    ],
)
def test_a_run_is_stopped_at_its_limit(
    changed: dict[str, object], pace: float, ended: tuple[float, tuple[str, str]] | None
) -> None:
    assert LEAST_MEASURED == 10
    assert ended_at(replace(SPEC, **changed), pace) == ended  # type: ignore[arg-type]


def test_a_script_that_never_trains_has_no_steps_to_be_stopped_by() -> None:
    limits = Limits(replace(SPEC, measured_s=1.0, steps=3), lambda: None)

    assert [limits.reached(0.0, float(second)) for second in range(100)] == [None] * 100
