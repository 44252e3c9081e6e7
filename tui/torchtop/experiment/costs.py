"""What a mean step consists of, so that two runs can be set against each other.

The frontier of `torchtop.diagnose` says which phase makes the step as long as it is; here the
rank that leads each step is looked at alone. Its phases, less what it loses as a straggler, plus
that loss, plus the communication that is exposed on all ranks, are the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from torchtop.diagnose.frontier import FORWARD, LOCAL_PHASES, FrontierStep
from torchtop.diagnose.window import Window

_GAPS = ("pre_optimizer", "other")
"""Phases in which a host does little else than to go on to the next."""


@dataclass(frozen=True)
class Costs:
    """A mean step, in milliseconds: `work_ms`, `straggler_ms` and `comm_ms` sum to `step_ms`.

    Attributes:
        step_ms: how long it takes.
        work_ms: the leading rank's phases, by name, without what it loses as a straggler.
        idle_ms: for how long of them its GPU had to wait for its host, at the most, by name; None
            where that is not known, as on a CPU.
        straggler_ms: how much longer than the others the leading rank takes for its own reasons,
            other than a wait for data.
        comm_ms: exposed communication of the rank with the least of it. Of a single rank this is
            what DDP does when backward has ended, such as copying gradients.
        comm_idle_ms: the same as `idle_ms`, of a single rank's `comm_ms`.
        ranks: how many.
        cuda: whether they compute on GPUs.
    """

    step_ms: float
    work_ms: Mapping[str, float]
    idle_ms: Mapping[str, float] | None = None
    straggler_ms: float = 0.0
    comm_ms: float = 0.0
    comm_idle_ms: float = 0.0
    ranks: int = 1
    cuda: bool = True

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Costs | None:
        """What `to_json` gave; None for anything else, as of an older release."""
        if not isinstance(value, dict):
            return None
        known = {name: item for name, item in value.items() if name in cls.__dataclass_fields__}
        try:
            return cls(**known)
        except TypeError:
            return None


def costs_of(
    window: Window,
    steps: Sequence[FrontierStep],
    step_ms: float | None = None,
) -> Costs:
    """The mean step of some steps.

    Args:
        window: what `diagnose.window.summarise` makes of the steps.
        steps: the steps themselves.
        step_ms: how long a step really takes, where only some are recorded: what the recorded
            ones consist of is taken for all.
    """
    work_us = dict(zip(LOCAL_PHASES, _leading_us(steps), strict=True))
    work_us["data"] += window.frontier_us["data"] - fmean(_data_us(steps))
    own = window.excess.parts
    lost_us = {
        phase: min(work_us[phase], own.straggler_us[phase] + own.unknown_us[phase])
        for phase in LOCAL_PHASES
        if phase != "data"  # for a batch that is late on one rank alone, all wait as well
    }
    work_us = {phase: us - lost_us.get(phase, 0.0) for phase, us in work_us.items()}
    comm_us = window.frontier_us["exposed_comm"]
    whole_us = sum(work_us.values()) + sum(lost_us.values()) + comm_us
    scale = 1e-3 if step_ms is None or not whole_us else step_ms / whole_us
    idle_us = _idle_us(window, work_us)
    alone = len(window.ranks) == 1
    starved = window.starved_part or 0.0
    return Costs(
        step_ms=whole_us * scale,
        work_ms={phase: us * scale for phase, us in work_us.items()},
        idle_ms=None if idle_us is None else {p: us * scale for p, us in idle_us.items()},
        straggler_ms=sum(lost_us.values()) * scale,
        comm_ms=comm_us * scale,
        comm_idle_ms=comm_us * scale * starved if alone else 0.0,
        ranks=len(window.ranks),
        cuda=window.cuda,
    )


def _leading_us(steps: Sequence[FrontierStep]) -> list[float]:
    """Mean time of each local phase of the rank that leads each step."""
    rows = []
    for step in steps:
        local = list(step.rows[step.leader].local_us)
        # What it waits in forward for another rank's buffers is no work of its own.
        local[FORWARD] -= sum(local) - step.local_us[step.leader]
        rows.append(local)
    return [fmean(column) for column in zip(*rows, strict=True)]


def _data_us(steps: Sequence[FrontierStep]) -> list[int]:
    data = LOCAL_PHASES.index("data")
    return [step.frontier_us[data] for step in steps]


def _idle_us(window: Window, work_us: Mapping[str, float]) -> dict[str, float] | None:
    """How long the leading rank's GPU waited for its host, by phase, at the most."""
    if not window.cuda or not window.idle_us or window.starved_part is None:
        return None
    idle_us = {}
    for phase, us in work_us.items():
        waited = us * window.starved_part if phase in _GAPS else window.idle_us.get(phase, 0.0)
        idle_us[phase] = max(0.0, min(us, waited))
    return idle_us


def combine(runs: Sequence[Costs], step_ms: float) -> Costs | None:
    """Several runs of the same cell as one.

    Args:
        runs: each with phases of its own; a run counts as much as another.
        step_ms: the step of all of them, such as the median.
    """
    if not runs:
        return None
    first = runs[0]

    def share(values: Sequence[float]) -> float:
        pairs = zip(values, runs, strict=True)
        return fmean(value / run.step_ms if run.step_ms else 0.0 for value, run in pairs)

    names = list(first.work_ms)
    idle = [run.idle_ms for run in runs if run.idle_ms is not None]
    known = len(idle) == len(runs)
    return Costs(
        step_ms=step_ms,
        work_ms={n: step_ms * share([run.work_ms.get(n, 0.0) for run in runs]) for n in names},
        idle_ms={n: step_ms * share([ms.get(n, 0.0) for ms in idle]) for n in names}
        if known
        else None,
        straggler_ms=step_ms * share([run.straggler_ms for run in runs]),
        comm_ms=step_ms * share([run.comm_ms for run in runs]),
        comm_idle_ms=step_ms * share([run.comm_idle_ms for run in runs]),
        ranks=first.ranks,
        cuda=first.cuda,
    )
