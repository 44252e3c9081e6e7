"""Steps of a window added up: means, because stalls are bursty and medians hide them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from .excess import Parts, Scale, combine, lag_low, split, starved
from .frontier import DATA, FRONTIER_PHASES, LOCAL_PHASES, FrontierStep, Row, untold_us
from .holes import Holes, holes
from .stretch import Stretch, stretch
from .thresholds import Thresholds


@dataclass(frozen=True)
class RankMeans:
    """One rank's means over a window, microseconds a step; None where unknown."""

    rank: int
    phases_us: dict[str, float]
    step_us: float
    host_us: float | None
    wait_us: float
    lag_us: float | None
    data_host_us: float | None
    lag_forward_us: float | None = None
    stall_burst: float = 0.0
    """Part of its wait for data (0..1) that falls into a quarter of the steps."""
    stall_steady: float = 0.0
    """Part of it that falls into the half of the window with less of it: at most 0.5."""
    samples: float | None = None
    untold_us: float = 0.0
    """As in `Window`."""
    stretch: Stretch | None = None
    """How much longer its device takes for the same work than at its fastest."""


@dataclass(frozen=True)
class Excess:
    """Who leads and why; microseconds a step over the whole window."""

    total_us: float
    rank: int | None
    """The persistent leader, or None where the lead rotates."""
    lead: dict[int, float]
    """Part of the total (0..1) that each rank leads."""
    group: tuple[int, ...]
    """The ranks that are slower than the rest, no more than half of them; else empty."""
    parts: Parts
    """The excess of the persistent leader, or of all leaders where the lead rotates."""
    gap_us: float
    """How far a persistent leader is beyond the runner-up."""
    mean_wait_us: float
    """What a rank waits on average: what balancing the work could gain."""


@dataclass(frozen=True)
class Window:
    """A window of steps across all ranks."""

    from_step: int
    to_step: int
    """One past the last step."""
    recorded: int
    seconds: float
    step_us: float
    frontier_us: dict[str, float]
    """Mean over the steps of what each of FRONTIER_PHASES adds; sums to step_us."""
    durations_us: tuple[int, ...]
    pauses_us: tuple[int, ...]
    """Steps that are left out of everything but `durations_us`: rare and far too long."""
    left_us: int
    """Time of all steps that are left out."""
    ranks: tuple[RankMeans, ...]
    excess: Excess
    unknown: frozenset[str]
    """Phases that some rank cannot tell."""
    starved_part: float | None
    """Part of the steps (0..1) in which the critical rank's device was starved in forward and
    backward; None where lag is not known."""
    critical_lag_us: float | None
    """Median over the steps of the critical rank's lag (the lowest that the evidence allows)."""
    cuda: bool
    blocked_us: dict[str, float] = field(default_factory=dict)
    """By phase, how long the critical rank's host waited for its device; empty where unknown."""
    blocked_part: float = 0.0
    """Part of the steps (0..1) in which it did."""
    idle_us: dict[str, float] = field(default_factory=dict)
    """By phase, how long the critical rank's device can have been idle in forward, backward and
    optimizer (see `Holes`); empty where unknown."""
    idle_most_us: float = 0.0
    """How long in all of them, at the most."""

    untold_us: float = 0.0
    """How much of forward may as well be a wait for a batch that another thread fetches."""
    unseen_us: float = 0.0
    """How much longer than `step_us` the steps took on average, where that is more than chance: a
    few that are not recorded must have taken very long."""

    def share(self, phase: str) -> float:
        """Share of the step (0..1) that a phase of the frontier takes."""
        return self.frontier_us[phase] / self.step_us if self.step_us else 0.0

    def apart(self) -> Window:
        """The same of ranks that never wait for one another: none is a straggler."""
        nothing = dict.fromkeys(LOCAL_PHASES, 0.0)
        parts = Parts(nothing, nothing, nothing)
        return replace(self, excess=Excess(0.0, None, {}, (), parts, 0.0, 0.0))


def summarise(
    steps: Sequence[FrontierStep],
    cuda: bool,
    limits: Thresholds,
    pauses: Sequence[FrontierStep] = (),
    recurring: Sequence[FrontierStep] = (),
) -> Window:
    """Add up the steps of a window, at least one.

    Args:
        steps: in order.
        cuda: whether the ranks compute on GPUs.
        limits: thresholds.
        pauses: steps in between that count in `durations_us` alone.
        recurring: further such steps, of which something else tells.
    """
    count = len(steps)
    step_us = fmean(step.step_us for step in steps)
    sums = [sum(column) for column in zip(*(step.frontier_us for step in steps), strict=True)]
    ranks = range(len(steps[0].rows))
    scale = Scale.of(step_us, limits)
    starved_part, critical_lag = _critical(steps, cuda, scale)
    told = _holes(steps, cuda, scale, limits)
    return Window(
        from_step=steps[0].step,
        to_step=steps[-1].step + 1,
        recorded=count,
        seconds=_seconds(steps),
        step_us=step_us,
        frontier_us={p: total / count for p, total in zip(FRONTIER_PHASES, sums, strict=True)},
        durations_us=tuple(step.step_us for step in (*steps, *pauses, *recurring)),
        left_us=sum(step.step_us for step in (*pauses, *recurring)),
        pauses_us=tuple(step.step_us for step in pauses),
        ranks=tuple(_rank_means(rank, steps, cuda, scale) for rank in ranks),
        excess=_excess(steps, cuda, scale, limits),
        unknown=_unknown(steps, limits),
        starved_part=starved_part,
        critical_lag_us=critical_lag,
        cuda=cuda,
        blocked_us=_by_phase([hole.blocked_us for hole in told]),
        blocked_part=sum(any(hole.blocked_us) for hole in told) / max(1, len(told)),
        idle_us=_by_phase([hole.idle_us for hole in told]),
        idle_most_us=sum(sum(hole.most_us) for hole in told) / max(1, len(told)),
        untold_us=sum(untold_us(step) for step in steps) / count,
    )


def _seconds(steps: Sequence[FrontierStep]) -> float:
    """Time that the window spans, all its steps included, on one rank's host clock."""
    first, last = steps[0].rows[0], steps[-1].rows[0]
    lead_in = first.host_us if first.host_us is not None else steps[0].step_us
    return max(0, last.end_ns - first.end_ns) / 1e9 + lead_in / 1e6


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None] if None in values else values
    return sum(known) / len(known) if known else None  # type: ignore[arg-type]


def _rank_means(rank: int, steps: Sequence[FrontierStep], cuda: bool, scale: Scale) -> RankMeans:
    rows = [step.rows[rank] for step in steps]
    count = len(rows)
    columns = dict(zip(Row._fields, zip(*rows, strict=True), strict=True))
    locals_us = list(zip(*columns["local_us"], strict=True))
    exposed = sum(columns["exposed_us"]) / count
    local = [sum(column) / count for column in locals_us]
    phases = dict(zip(FRONTIER_PHASES, (*local, exposed), strict=True))
    return RankMeans(
        rank=rank,
        phases_us=phases,
        step_us=sum(phases.values()),
        host_us=_mean(columns["host_us"]),
        wait_us=sum(step.waits_us[rank] for step in steps) / count,
        lag_us=_mean([row_lag_us(row) for row in rows]),
        data_host_us=_mean(columns["data_host_us"]),
        lag_forward_us=_mean(columns["lag_forward_us"]),
        stall_burst=_burst(locals_us[DATA]),
        stall_steady=_steady(locals_us[DATA]),
        samples=_mean(columns["samples"]),
        untold_us=sum(columns["untold_us"]) / count,
        stretch=stretch(rows, len(steps[0].rows) == 1, scale) if cuda else None,
    )


def _burst(stalls_us: Sequence[int]) -> float:
    """The part of the stalls that the longest quarter of them makes up."""
    longest = sorted(stalls_us, reverse=True)[: max(1, len(stalls_us) // 4)]
    return sum(longest) / max(1, sum(stalls_us))


def row_lag_us(row: Row) -> int | None:
    """One number for a step's lag: at the end of backward, else of forward."""
    return row.lag_forward_us if row.lag_backward_us is None else row.lag_backward_us


def _steady(stalls_us: Sequence[int]) -> float:
    """The part of the stalls that is in the half of the steps with less of them."""
    half = len(stalls_us) // 2
    return min(sum(stalls_us[:half]), sum(stalls_us[half:])) / max(1, sum(stalls_us))


def _unknown(steps: Sequence[FrontierStep], limits: Thresholds) -> frozenset[str]:
    counts: Counter[tuple[int, str]] = Counter()
    for step in (step for step in steps if step.patchy):
        for rank, row in enumerate(step.rows):
            if row.unknown:
                counts.update((rank, phase) for phase in row.unknown)
    many = limits.unknown_rows * len(steps)
    return frozenset(phase for (_, phase), count in counts.items() if count > many)


def _critical(
    steps: Sequence[FrontierStep], cuda: bool, scale: Scale
) -> tuple[float | None, float | None]:
    """How starved the critical rank of each step is, and its lag."""
    if not cuda:
        return None, None
    hungry: list[bool] = []
    lags: list[float] = []
    for step in steps:
        row = step.rows[step.leader]
        at = (row.lag_forward_us, row.lag_backward_us)
        states = [starved(lag, row.lag_width_us, scale) for lag in at]
        if None not in states:
            hungry.append(all(states))
        lows = [lag_low(lag, row.lag_width_us) for lag in at if lag is not None]
        if lows:
            lags.append(max(lows))
    half = len(steps) / 2
    return (
        sum(hungry) / len(hungry) if len(hungry) >= half else None,
        median(lags) if len(lags) >= half else None,
    )


def _holes(
    steps: Sequence[FrontierStep], cuda: bool, scale: Scale, limits: Thresholds
) -> list[Holes]:
    """The critical rank's `Holes` in each step that tells them; none where fewer than half do."""
    told = [holes(s.rows[s.leader], scale, limits) for s in steps] if cuda else []
    known = [hole for hole in told if hole is not None]
    return known if 2 * len(known) >= max(1, len(steps)) else []


def _by_phase(columns: Sequence[tuple[float, ...]]) -> dict[str, float]:
    """Means over the steps, by name; empty where there are none."""
    means = [sum(column) / len(columns) for column in zip(*columns, strict=True)]
    return dict(zip(LOCAL_PHASES, means, strict=True)) if means else {}


def _excess(steps: Sequence[FrontierStep], cuda: bool, scale: Scale, limits: Thresholds) -> Excess:
    weight: Counter[int] = Counter()
    for step in steps:
        weight[step.leader] += step.excess_us
    total = sum(weight.values())
    lead = {rank: part / total for rank, part in sorted(weight.items()) if total and part}
    first = max(lead, key=lambda rank: lead[rank], default=None)
    rank = first if first is not None and lead[first] >= limits.persistent else None
    led = [step for step in steps if rank is None or step.leader == rank]
    count = len(steps)
    return Excess(
        total_us=total / count,
        rank=rank,
        lead=lead,
        group=_group(steps, rank, lead, limits),
        parts=combine([split(step, cuda, scale) for step in led], count),
        gap_us=sum(_gap_us(step) for step in led) / count,
        mean_wait_us=fmean(max(step.local_us) - fmean(step.local_us) for step in steps),
    )


def _gap_us(step: FrontierStep) -> int:
    if len(step.local_us) < 2:
        return 0
    first, second = sorted(step.local_us, reverse=True)[:2]
    return first - second


def _group(
    steps: Sequence[FrontierStep], rank: int | None, lead: dict[int, float], limits: Thresholds
) -> tuple[int, ...]:
    """The ranks that are slow together.

    With a persistent leader: itself, and those that are slower than the base by half as much at
    least. Else the fewest ranks that lead nearly always, in turns.
    """
    world = len(steps[0].rows)
    if rank is not None:
        local = [fmean(column) for column in zip(*(s.local_us for s in steps), strict=True)]
        base = sorted(local)[(world - 1) // 2]
        limit = base + limits.companion * (local[rank] - base)
        slow = [r for r in range(world) if local[r] >= limit and local[r] > base]
    else:
        slow, covered = [], 0.0
        for other in sorted(lead, key=lambda r: -lead[r]):
            slow.append(other)
            covered += lead[other]
            if covered >= limits.group:
                break
    return tuple(sorted(slow)) if slow and 2 * len(slow) <= world else ()
