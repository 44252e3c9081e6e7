"""Where throughput is lost between the ideal and what was measured. Pure functions.

With N times the devices the ideal is N times the throughput. Steps make it exact: a step on the
same number of samples would take T_ideal, and takes T, so of the ideal throughput the part
1 - T_ideal / T is lost, and a cause that adds d to the step takes d / T of it. The causes are the
differences between three mean steps, phase by phase (`costs`):

- the base: the fewest devices, with a larger batch for each, scaled to the ideal;
- the reference: as few devices, with as small a batch for each as is measured. What a phase takes
  here beyond its scaled self is the price of the smaller batch, or of launches;
- the cell itself. What a phase takes beyond the reference is the price of working together.

A phase that grows while its GPU waits longer for the host grows for want of launches, by as much
as the wait does. All differences are taken once, so they sum to T - T_ideal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchtop.experiment.costs import Costs

LABELS = {
    "exposed_comm": "exposed communication",
    "straggler": "straggler wait",
    "data": "data",
    "small_batch": "smaller batch a GPU",
    "launch": "launch-bound",
    "comm_beside": "backward beside communication",
    "replication": "DataParallel's copies",
    "shared_cores": "ranks share the CPU",
    "other": "other",
}
"""The parts of a loss, in the order in which they are drawn."""

_ALWAYS = ("exposed_comm", "straggler", "data", "small_batch", "launch", "other")
_LEAST_POINTS = 0.05


@dataclass(frozen=True)
class Measured:
    """A cell as the accounting sees it.

    Attributes:
        id: the cell's.
        costs: its mean step.
        batch: samples in a step over all devices.
        devices: how many.
        parallel: ddp, dp, single, or None.
    """

    id: str
    costs: Costs
    batch: float
    devices: int
    parallel: str | None = None

    @property
    def samples_per_s(self) -> float:
        """Throughput of all devices."""
        return self.batch / self.costs.step_ms * 1e3

    @property
    def batch_each(self) -> float:
        """Samples in a step of one device."""
        return self.batch / self.devices


@dataclass
class _Loss:
    """Milliseconds a step, by part."""

    ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LABELS, 0.0))

    def add(self, key: str, ms: float) -> None:
        self.ms[key] += ms


def explain(base: Measured, reference: Measured | None, cell: Measured) -> dict[str, Any]:
    """Account for what a cell lacks of its ideal throughput.

    Args:
        base: the cell that the ideal comes from.
        reference: as many devices as the base has, with the cell's batch for each; the base itself
            where its batch is that; None where it was not measured.
        cell: the cell.

    Returns:
        The ``loss`` of a cell of ``sweep.json`` (see `torchtop.session.sweeps`).
    """
    if same_batch(base, cell):
        reference = base
    scale = cell.batch * base.devices / (cell.devices * base.batch)
    loss = _Loss()
    before = reference or base
    _smaller_batch(loss, base, reference, scale)
    _together(loss, before, cell, scale if reference is None else 1.0)
    step_ms, ideal_ms = cell.costs.step_ms, base.costs.step_ms * scale
    points = {key: 100.0 * ms / step_ms for key, ms in loss.ms.items()}
    shown = [key for key in LABELS if key in _ALWAYS or abs(points[key]) >= _LEAST_POINTS]
    why = _why(base, reference, cell, scale)
    return {
        "base": base.id,
        "reference": None if reference is None or reference is base else reference.id,
        "ideal_samples_per_s": cell.batch / ideal_ms * 1e3,
        "measured_samples_per_s": cell.samples_per_s,
        "lost_points": 100.0 * (1.0 - ideal_ms / step_ms),
        "parts": [
            {
                "key": key,
                "label": LABELS[key],
                "points": points[key],
                "ms": loss.ms[key],
                "why": why.get(key),
            }
            for key in shown
        ],
    }


def same_batch(base: Measured, cell: Measured) -> bool:
    """Whether a device has as much to do in both."""
    return abs(cell.batch_each - base.batch_each) < 0.5


def _smaller_batch(loss: _Loss, base: Measured, small: Measured | None, scale: float) -> None:
    """What a smaller batch costs on as few devices as the base has."""
    if small is None or small is base:
        return
    a, b = base.costs, small.costs
    _work(loss, a, b, scale, lambda _phase, _ms: "small_batch")
    more = b.comm_ms - scale * a.comm_ms
    if a.ranks > 1:
        loss.add("exposed_comm", more)
        return
    launches = _launches(more, b.comm_idle_ms, a.comm_idle_ms, scale)
    loss.add("launch", launches)
    loss.add("small_batch", more - launches)


def _together(loss: _Loss, before: Measured, cell: Measured, scale: float) -> None:
    """What working together costs; with a smaller batch in it where `scale` is not 1."""
    a, b = before.costs, cell.costs
    replicas = cell.parallel == "dp" and cell.devices > 1
    _work(loss, a, b, scale, lambda phase, ms: _rest(phase, ms, b, replicas, scale))
    more = b.comm_ms - scale * a.comm_ms
    loss.add("exposed_comm" if b.ranks > 1 else "replication" if replicas else "other", more)


def _work(loss: _Loss, a: Costs, b: Costs, scale: float, rest: Callable[[str, float], str]) -> None:
    """What the ranks' own work costs more in `b` than in `a`.

    Args:
        loss: takes the parts.
        a: the step before, which would take `scale` of itself.
        b: the step after.
        scale: the ideal.
        rest: the part that belongs to milliseconds of a phase that are not the launches'.
    """
    loss.add("straggler", b.straggler_ms - scale * a.straggler_ms)
    for phase, ms in b.work_ms.items():
        more = ms - scale * a.work_ms.get(phase, 0.0)
        if phase == "data":
            loss.add("data", more)
            continue
        launches = _launches(more, _idle(b, phase), _idle(a, phase), scale)
        loss.add("launch", launches)
        loss.add(rest(phase, more - launches), more - launches)


def _rest(phase: str, ms: float, costs: Costs, replicas: bool, scale: float) -> str:
    """The part that more time in a phase belongs to, which is not the host's."""
    if scale != 1.0:
        return "small_batch"
    if replicas:
        return "replication"
    if not costs.cuda:
        return "shared_cores"
    # Kernels that reduce gradients take multiprocessors and memory bandwidth from backward.
    return "comm_beside" if phase == "backward" and ms > 0 and costs.ranks > 1 else "other"


def _idle(costs: Costs, phase: str) -> float | None:
    return None if costs.idle_ms is None else costs.idle_ms.get(phase, 0.0)


def _launches(more: float, now: float | None, before: float | None, scale: float) -> float:
    """How much of a growth is for want of launches: as far as the wait for the host grew with it.

    Args:
        more: the growth of a phase, milliseconds.
        now: for how long of it the GPU waits for the host; None where not known.
        before: the same in what it is set against.
        scale: of that.
    """
    if now is None or before is None:
        return 0.0
    return max(min(0.0, more), min(max(0.0, more), now - scale * before))


def _why(
    base: Measured, reference: Measured | None, cell: Measured, scale: float
) -> Mapping[str, str]:
    """Sentences with the numbers behind the parts."""
    step = cell.costs.step_ms
    told = {
        "exposed_comm": f"{_ms(cell.costs.comm_ms)} of a step of {_ms(step)}",
        "straggler": f"{_ms(cell.costs.straggler_ms)} of it",
        "data": f"{_ms(cell.costs.work_ms.get('data', 0.0))} of it",
    }
    if reference is None:
        told["small_batch"] = "with all that working together adds: no run with this batch alone"
    elif reference is not base:
        told["small_batch"] = (
            f"{reference.batch_each:g} samples take {_ms(reference.costs.step_ms)} on one alone; "
            f"their share of {base.batch_each:g} is {_ms(base.costs.step_ms * scale)}"
        )
    idle = cell.costs.idle_ms
    if idle is not None:
        waits = sum(idle.values()) / step
        told["launch"] = f"the GPU waits for its host for up to {waits:.0%} of the step"
        if base.costs.idle_ms is not None:
            was = sum(base.costs.idle_ms.values()) / base.costs.step_ms
            told["launch"] += f"; in the base for up to {was:.0%}"
    elif cell.costs.cuda:
        told["launch"] = "not known: the probe could not tell the lag"
    return told


def _ms(value: float) -> str:
    return f"{value:.3g} ms" if abs(value) < 1000 else f"{value:.0f} ms"
