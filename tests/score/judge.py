"""How right verdicts were: against the fault, a trace, and the run without the fault's cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import groupby, pairwise
from statistics import fmean, median
from typing import Any

from score.recording import Part, Phases, Recording, Steps
from score.trace import PHASES
from torchtop_workloads.faults import Fault

BEFORE_FORWARD = ("pre_optimizer", "optimizer", "other", "data")
LOCAL = (*BEFORE_FORWARD, "forward", "backward")
"""What a rank does between two gradient synchronisations, in order."""

LIMIT_S, LIMIT_STEPS = 10.0, 25
"""A right verdict is due after so long or so many steps after the warm-up, whichever is later."""

STARVED = 0.01
"""A device that is behind its host by less than this part of a step starves."""

WINDOW_S = 10.0
"""No wrong verdict may stand for longer: the window that verdicts are made from."""


_MISCOUNTED = "script and probe do not count the same steps"


@dataclass(frozen=True)
class Row:
    """One fault of the matrix. Shares are 0..1 of the step; None where not known."""

    code: str
    name: str
    expected: tuple[str, ...]
    healthy: bool
    kind: str | None = None
    rank: int | None = None
    phase: str | None = None
    severity: str | None = None
    headline: str | None = None
    right: bool = False
    in_time: bool = False
    first_right_s: float | None = None
    """From the end of the warm-up to the first right verdict."""
    due_s: float | None = None
    wrong: dict[str, float] = field(default_factory=dict)
    """Seconds for which wrong verdicts of at least a warning stood, by kind."""
    longest_wrong_s: float = 0.0
    share: float | None = None
    probe_share: float | None = None
    """Worked out from the probe's phases of the steps that the trace has."""
    trace_share: float | None = None
    phase_gap: float | None = None
    """The largest difference of a phase's share between probe and trace, on the same steps."""
    phase_gap_in: str | None = None
    compared_steps: int = 0
    gain_bound: float | None = None
    gain: float | None = None
    """How much faster the run was without the cause."""
    gain_is_least: bool = False
    """Whether the cause was not gone altogether, so that its absence would gain more."""
    step_ms: float | None = None
    fixed_ms: float | None = None
    problem: str | None = None
    """Why there is no verdict to judge, or why it cannot be trusted."""

    @property
    def passed(self) -> bool:
        """Whether it was told what it is, in time, and nothing else for long."""
        return self.right and self.in_time and self.longest_wrong_s <= WINDOW_S

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return {**asdict(self), "passed": self.passed}


def judge(fault: Fault, recording: Recording, traces: Mapping[int, list[dict[str, Any]]]) -> Row:
    """Judge one session.

    Args:
        fault: what was wrong in it.
        recording: the session.
        traces: `TraceStep` as JSON, of the ``profile`` part, by rank.
    """
    told: dict[str, Any] = {
        "code": fault.code,
        "name": fault.name,
        "expected": fault.expected,
        "healthy": fault.healthy,
    }
    part = recording.parts.get("fault")
    if part is None or part.settled_ns is None:
        return Row(**told, problem="it did not train until its warm-up was over")
    verdicts = _verdicts(fault, part, recording.analyses, recording.world_size)
    compared = _against_trace(fault, recording, traces, verdicts)
    counted = {"problem": _MISCOUNTED} if recording.misaligned else {}
    problems = [found.pop("problem", None) for found in (verdicts, compared, counted)]
    told["problem"] = "; ".join(filter(None, problems)) or None
    return Row(**told, **verdicts, **compared, **_counterfactual(fault, recording))


# -- verdicts ------------------------------------------------------------------------------------


def _verdicts(
    fault: Fault, part: Part, analyses: list[dict[str, Any]], world_size: int
) -> dict[str, Any]:
    judged = [record for record in analyses if _is_about(record, part)]
    if not judged:
        return {"problem": "there was no verdict before the fault ended"}
    rights = [is_right(fault, record["verdict"], world_size) for record in judged]
    begin = part.settled_ns or 0
    first = next((r["mono_ns"] for r, good in zip(judged, rights, strict=True) if good), None)
    first_s = None if first is None else (first - begin) / 1e9
    due_s = max(LIMIT_S, LIMIT_STEPS * (part.step_ms or 0.0) / 1000)
    last = judged[-1]["verdict"]
    spells = list(_wrong_spells(judged, rights))
    wrong: dict[str, float] = {}
    for kind, seconds in spells:
        wrong[kind] = round(wrong.get(kind, 0.0) + seconds, 1)
    return {
        **{key: last.get(key) for key in ("kind", "rank", "phase", "severity", "headline")},
        "share": last.get("share"),
        "gain_bound": last.get("gain_bound"),
        "right": rights[-1],
        "in_time": first_s is not None and first_s <= due_s,
        "first_right_s": first_s,
        "due_s": due_s,
        "wrong": wrong,
        "longest_wrong_s": max((seconds for _, seconds in spells), default=0.0),
    }


def _is_about(record: dict[str, Any], part: Part) -> bool:
    """Whether an analysis has a verdict on this part of the run alone."""
    window, verdict = record.get("window"), record.get("verdict")
    if record.get("kind") != "analysis" or record.get("warming_up") or not window or not verdict:
        return False
    if part.settled_ns is None or record["mono_ns"] < part.settled_ns:
        return False
    return part.to_step is None or window["to_step"] <= part.to_step


def is_right(fault: Fault, verdict: Mapping[str, Any], world_size: int = 2) -> bool:
    """Whether a verdict's fields name the fault, in a run of so many ranks."""
    named = verdict.get("rank"), verdict.get("phase")
    return fault.is_right(verdict["kind"], verdict["severity"], *named, world_size)


def _wrong_spells(
    judged: list[dict[str, Any]], rights: Iterable[bool]
) -> Iterable[tuple[str, float]]:
    """The kinds of wrong verdicts in a row, and for how long they stood: until the next record."""
    times = [record["mono_ns"] for record in judged]
    lasts = [(b - a) / 1e9 for a, b in pairwise(times)] + [1.0]

    def label(item: tuple[dict[str, Any], bool, float]) -> str | None:
        verdict = item[0]["verdict"]
        bad = not item[1] and verdict["severity"] in ("warn", "critical")
        return str(verdict["kind"]) if bad else None

    items = zip(judged, rights, lasts, strict=True)
    for kind, group in groupby(items, key=label):
        if kind is not None:
            yield kind, sum(item[2] for item in group)


# -- the trace -----------------------------------------------------------------------------------


def _against_trace(
    fault: Fault,
    recording: Recording,
    traces: Mapping[int, list[dict[str, Any]]],
    told: Mapping[str, Any],
) -> dict[str, Any]:
    part = recording.parts.get("profile")
    if not traces or part is None or part.settled_step is None:
        return {}
    # The first step after the warm-up begins with an idle device: the script has waited for it.
    after = part.settled_step
    traces = {rank: [row for row in rows if row["step"] > after] for rank, rows in traces.items()}
    in_trace: Steps = {
        rank: {row["step"]: row["phases_us"] for row in rows} for rank, rows in traces.items()
    }
    both = set.intersection(
        *(set(rows) for rows in in_trace.values()),
        *(set(recording.steps.get(rank, {})) for rank in in_trace),
    )
    if not both:
        return {"problem": "no step is both in the trace and in the recording"}
    ours, theirs = _only(recording.steps, both, in_trace), _only(in_trace, both, in_trace)
    gap, where = _phase_gap(ours, theirs)
    kind = told.get("kind") or fault.expected[0]
    meet = bool(fault.settings.get("batch_norm"))
    idle = _idle_share(kind, [row for rows in traces.values() for row in rows])
    return {
        "compared_steps": len(both),
        "phase_gap": gap,
        "phase_gap_in": where,
        "probe_share": share(kind, ours, told.get("rank"), meet),
        "trace_share": share(kind, theirs, told.get("rank"), meet) if idle is None else idle,
    }


def _only(steps: Steps, numbers: Iterable[int], ranks: Iterable[int]) -> Steps:
    wanted = sorted(numbers)
    return {rank: {step: steps[rank][step] for step in wanted} for rank in ranks}


def _phase_gap(ours: Steps, theirs: Steps) -> tuple[float, str]:
    """The largest difference, and the rank and phase that it is in."""
    gaps = []
    for rank, rows in ours.items():
        mine, other = _shares(rows.values()), _shares(theirs[rank].values())
        gaps += [(abs(mine[p] - other[p]), f"rank {rank} {p}") for p in PHASES]
    return max(gaps)


def _shares(rows: Iterable[Phases]) -> Phases:
    sums = dict.fromkeys(PHASES, 0.0)
    for row in rows:
        for phase in PHASES:
            sums[phase] += row[phase]
    total = sum(sums.values())
    return {phase: value / total if total else 0.0 for phase, value in sums.items()}


def share(kind: str, steps: Steps, rank: int | None, meet_in_forward: bool) -> float | None:
    """What a kind of bottleneck takes of the step, from the phases of all ranks.

    Args:
        kind: one that phases show; None is returned for others.
        steps: the same of all ranks.
        rank: the rank that a verdict names.
        meet_in_forward: whether ranks also wait for each other at the begin of forward.
    """
    costs = {
        "DATA": _frontier("data"),
        "OPTIMIZER": _frontier("optimizer"),
        "COMM": _least_exposed,
        "COMPUTE-BOUND": _frontier("forward", "backward", "optimizer"),
    }
    cost = costs.get(kind)
    if kind in ("STRAGGLER", "CONTENTION", "THROTTLED"):  # the latter slow one rank down, too
        cost = _excess_twice if meet_in_forward else _excess if rank is not None else _imbalance
        if len(steps) < 2:
            return None  # one rank does not show what it would take without
    numbers = next(iter(steps.values()), {})
    ranked = [[steps[rank][number] for rank in sorted(steps)] for number in numbers]
    total = sum(max(map(_local, rows)) + _least_exposed(rows) for rows in ranked)
    return None if cost is None or not total else sum(cost(rows) for rows in ranked) / total


def _local(row: Phases) -> float:
    return sum(row[phase] for phase in LOCAL)


def _least_exposed(rows: list[Phases]) -> float:
    """Communication that no rank spends in waiting for another."""
    return min(row["exposed_comm"] for row in rows)


def _frontier(*phases: str) -> Callable[[list[Phases]], float]:
    """What everybody must wait for in some phases: how much they move the slowest rank's time."""

    def reached(rows: list[Phases], count: int) -> float:
        return max(sum(row[phase] for phase in LOCAL[:count]) for row in rows)

    def cost(rows: list[Phases]) -> float:
        places = [LOCAL.index(phase) for phase in phases]
        return sum(reached(rows, place + 1) - reached(rows, place) for place in places)

    return cost


def _beyond(times: list[float]) -> float:
    """How far the slowest is beyond the (lower) median."""
    return max(times) - sorted(times)[(len(times) - 1) // 2]


def _excess(rows: list[Phases]) -> float:
    return _beyond([_local(row) for row in rows])


def _imbalance(rows: list[Phases]) -> float:
    """What ranks wait on average: what balancing the work could gain."""
    times = [_local(row) for row in rows]
    return max(times) - fmean(times)


def _excess_twice(rows: list[Phases]) -> float:
    """The excess up to forward, where ranks meet, and that of the rest without the wait there."""
    before = [sum(row[p] for p in BEFORE_FORWARD) for row in rows]
    rest = [
        max(0.0, row["forward"] + row["backward"] - (max(before) - own))
        for row, own in zip(rows, before, strict=True)
    ]
    return _beyond(before) + _beyond(rest)


def _idle_share(kind: str, rows: list[dict[str, Any]]) -> float | None:
    """What only the trace shows: copies, and idle time of the device by its cause."""
    columns = {
        "H2D": ("h2d_us",),
        "LAUNCH": ("launch_idle_us",),
        # After a wait the device stays hungry until the host has got ahead again.
        "SYNC": ("sync_idle_us", "launch_idle_us"),
    }
    names = columns.get(kind)
    total = sum(sum(row["phases_us"].values()) for row in rows)
    if names is None or not total or any(row[name] is None for row in rows for name in names):
        return None
    return sum(float(row[name]) for row in rows for name in names) / total


# -- without the cause ---------------------------------------------------------------------------


def _counterfactual(fault: Fault, recording: Recording) -> dict[str, Any]:
    faulty, part = recording.parts["fault"].step_ms, recording.parts.get("fixed")
    if part is None or not part.step_ms or not faulty:
        return {"step_ms": faulty}
    least = "LAUNCH" in fault.expected and _starves(recording.lags_us, part)
    gain = faulty / part.step_ms
    return {"step_ms": faulty, "fixed_ms": part.step_ms, "gain": gain, "gain_is_least": least}


def _starves(lags_us: Mapping[int, int], part: Part) -> bool:
    """Whether the device still has nothing left to do when its host has issued a step."""
    last = part.to_step if part.to_step is not None else part.from_step
    known = [lag for step, lag in lags_us.items() if (part.settled_step or 0) <= step < last]
    return bool(known) and median(known) < STARVED * 1000 * (part.step_ms or 0.0)
