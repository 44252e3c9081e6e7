"""Frontier accounting: which phase of which rank makes the step as long as it is.

Within a step the ranks start together, at the exit of the previous gradient synchronisation, and
leave together, at the exit of the next. Between the two, with C[r][s] the time that rank r has
spent when it has finished phase s, the frontier F[s] = max over r of C[r][s] is what everyone
must wait for: phase s costs the step F[s] - F[s-1], and the rank that attains the maximum leads.
What remains after the last local phase, min over r of the exposed communication, is pure
communication. Frontier and pure communication sum to the step.

Source: StageFrontier, arXiv 2606.06751; pure communication as in TraceLens (minimum over ranks).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LOCAL_PHASES = ("pre_optimizer", "optimizer", "other", "data", "forward", "backward")
"""The phases of local work, in the order in which they follow a gradient synchronisation."""

FRONTIER_PHASES = (*LOCAL_PHASES, "exposed_comm")

PRE_OPTIMIZER = LOCAL_PHASES.index("pre_optimizer")
OTHER = LOCAL_PHASES.index("other")
DATA = LOCAL_PHASES.index("data")
FORWARD = LOCAL_PHASES.index("forward")
BACKWARD = LOCAL_PHASES.index("backward")
OPTIMIZER = LOCAL_PHASES.index("optimizer")


class Row(NamedTuple):
    """One step as one rank saw it; integer microseconds."""

    step: int
    end_ns: int
    host_us: int | None
    local_us: tuple[int, ...]
    """Device time of each of LOCAL_PHASES; 0 where unknown."""
    exposed_us: int
    unknown: tuple[str, ...]
    """Phases that the probe could not tell."""
    data_host_us: int | None = None
    lag_forward_us: int | None = None
    lag_backward_us: int | None = None
    lag_width_us: int | None = None
    samples: int | None = None
    tokens: int | None = None
    local_host_us: tuple[int | None, ...] | None = None
    """Host time of each of LOCAL_PHASES, where the probe tells it."""
    local_lag_us: tuple[int | None, ...] | None = None
    """Lag at the end of each of LOCAL_PHASES, where the probe tells it at every marker."""
    untold_us: int = 0
    """How much of forward may as well be a wait for a batch that another thread fetches."""


class FrontierStep(NamedTuple):
    """One step across all ranks; microseconds."""

    step: int
    step_us: int
    frontier_us: tuple[int, ...]
    """What each of FRONTIER_PHASES adds to the step; sums to step_us."""
    leaders: tuple[int, ...]
    """Index of the leading rank at the end of each of LOCAL_PHASES."""
    leader: int
    """Index of the rank with the most local work."""
    base: int
    """Index of the lower-median rank by local work."""
    excess_us: int
    """Local work of the leader beyond the base's."""
    excess_by_phase_us: tuple[float, ...]
    """Where the leader loses it, over LOCAL_PHASES; sums to excess_us."""
    pure_comm_us: int
    local_us: tuple[int, ...]
    """Each rank's local work."""
    waits_us: tuple[int, ...]
    """How long each rank waits for the leader."""
    rows: tuple[Row, ...]
    """As the ranks told them."""
    patchy: bool = False
    """Whether a phase of some rank is unknown."""


def account(rows: Sequence[Row], broadcast: bool = False) -> FrontierStep:
    """Account for one step.

    Args:
        rows: the same step as each rank saw it, in rank order; at least one.
        broadcast: whether ranks also meet at the start of forward, where DDP broadcasts buffers;
            what a rank waits there is taken out of its forward (`broadcast_waits`).
    """
    if len(rows) == 1:
        return _of_one(rows[0])
    hidden = broadcast_waits(rows) if broadcast else [0] * len(rows)
    work = [_without(row.local_us, wait) for row, wait in zip(rows, hidden, strict=True)]
    cumulative = [0] * len(rows)
    reached = 0
    frontier: list[int] = []
    leaders: list[int] = []
    for phase in range(len(LOCAL_PHASES)):
        for index, local in enumerate(work):
            cumulative[index] += local[phase]
        most = max(cumulative)
        frontier.append(most - reached)
        leaders.append(cumulative.index(most))
        reached = most
    exposed = [row.exposed_us + wait for row, wait in zip(rows, hidden, strict=True)]
    pure_comm = min(exposed)
    frontier.append(pure_comm)
    base = sorted(range(len(rows)), key=cumulative.__getitem__)[(len(rows) - 1) // 2]
    leader = leaders[-1]
    excess = reached - cumulative[base]
    return FrontierStep(
        step=rows[0].step,
        step_us=reached + pure_comm,
        frontier_us=tuple(frontier),
        leaders=tuple(leaders),
        leader=leader,
        base=base,
        excess_us=excess,
        excess_by_phase_us=_spread(excess, work[leader], work[base]),
        pure_comm_us=pure_comm,
        local_us=tuple(cumulative),
        waits_us=tuple(wait - pure_comm for wait in exposed),
        rows=tuple(rows),
        patchy=any(row.unknown for row in rows),
    )


def _of_one(row: Row) -> FrontierStep:
    """A step of a single rank: there is nobody to lead or to wait for.

    As the general way has it, in a fifth of the time: where ranks train alone, all that is kept is
    looked at anew rank by rank, each second.
    """
    local, nothing = sum(row.local_us), len(LOCAL_PHASES) * (0,)
    return FrontierStep(
        step=row.step,
        step_us=local + row.exposed_us,
        frontier_us=(*row.local_us, row.exposed_us),
        leaders=nothing,
        leader=0,
        base=0,
        excess_us=0,
        excess_by_phase_us=nothing,
        pure_comm_us=row.exposed_us,
        local_us=(local,),
        waits_us=(0,),
        rows=(row,),
        patchy=bool(row.unknown),
    )


def untold_us(step: FrontierStep) -> float:
    """How much of a step's forward is perhaps none: mean of its ranks."""
    if not any(row.untold_us for row in step.rows):
        return 0.0
    mean = sum(row.untold_us for row in step.rows) / len(step.rows)
    return min(mean, step.frontier_us[FORWARD])


def broadcast_waits(rows: Sequence[Row]) -> list[int]:
    """How long each rank waits in forward for the last rank to get there.

    With ``broadcast_buffers`` (DDP's default, at work in every model with batch normalisation) a
    rank that is late at forward holds the others up in theirs, and the wait reads as their own
    work: they are late by as much as it was before, and longer in forward by as much.
    """
    before = [sum(row.local_us[:FORWARD]) for row in rows]
    last = max(range(len(rows)), key=before.__getitem__)
    forward = rows[last].local_us[FORWARD]
    return [
        max(0, min(row.local_us[FORWARD] - forward, before[last] - reached))
        for row, reached in zip(rows, before, strict=True)
    ]


def _without(local_us: tuple[int, ...], wait_us: int) -> tuple[int, ...]:
    if not wait_us:
        return local_us
    return (*local_us[:FORWARD], local_us[FORWARD] - wait_us, *local_us[FORWARD + 1 :])


def _spread(excess: int, leader: Sequence[int], base: Sequence[int]) -> tuple[float, ...]:
    """Split the excess over the phases in which the leader is slower than the base.

    Phases in which it is faster made up for some of it, in proportion.
    """
    slower = [max(0, a - b) for a, b in zip(leader, base, strict=True)]
    total = sum(slower)
    if not total:
        return (0.0,) * len(LOCAL_PHASES)
    return tuple(excess * part / total for part in slower)
