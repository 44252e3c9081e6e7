"""Ranks that all stand still: which of them the others wait for, and where it was last seen.

Ranks go through the same markers in the same order, and meet in each gradient synchronisation. So
a rank that does not get there holds the others up wherever they next need it, which is further on
than where it is itself: at the end of backward, or some steps later where a queue hides that a GPU
waits. The rank that has got least far is the one that they wait for. Where all have got about as
far, it is none of them. One that writes nothing any more has been stopped altogether, or has ended;
then it is that one. A rank whose script has ended hangs no more, but others may wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..session.records import MARKERS
from . import words
from .ages import Ranks, is_alive, marker_age_s
from .devices import NodeState
from .ranks import RankState
from .rows import integer
from .thresholds import Thresholds
from .verdict import Verdict

_BETWEEN = ("O1", "DX", "E0", "E1")
"""Markers after which a rank may be doing something that is no training."""
_FAR = {"D1": 1, "B0": 2, "nBC": 2, "nB1": 2, "BC": 3, "B1": 4, "O0": 5, "O1": 6}
"""How far in a step a rank is after a marker. In the steps that beats tell, the batch comes first;
what is not named comes before or after it."""
_FAR_ON_GPU = {"BC": 1, "B1": 2, "O0": 2, "O1": 2}
"""The same of a host that has a queue: seen from where ranks meet, which is the wait for gradients.
Hosts whose queues are full are held up at any kernel before it, or after it."""
_MOST_RANKS = 4
"""Ranks that are named in the evidence."""


class _Scene(NamedTuple):
    """Ranks that stand still."""

    ranks: Ranks
    ages_s: Mapping[int, float]
    """Since each rank's last marker."""
    writes: Collection[int]
    """Ranks whose probe still writes."""
    lives: Collection[int]
    """Ranks whose process is known to be there."""
    over: Mapping[int, bool]
    """Ranks whose script has ended, and whether with an error."""


def find(
    ranks: Ranks,
    nodes: Mapping[str, NodeState],
    now_ns: int,
    patience_s: float,
    limits: Thresholds,
    over: Mapping[int, bool],
) -> Verdict | None:
    """Ranks that have all passed no marker for long, while at least one of them lives.

    Those whose script has ended do not count: none hangs where it has everywhere.

    Args:
        ranks: by rank.
        nodes: by the name of their directory.
        now_ns: the present, on the clock of the lowest rank's host.
        patience_s: how long is long.
        limits: thresholds.
        over: ranks whose script has ended, and whether with an error.
    """
    going = ranks.keys() - over.keys()
    told = {rank: marker_age_s(ranks, state, now_ns) for rank, state in ranks.items()}
    ages = {rank: age for rank, age in told.items() if age is not None}
    youngest_s = min((ages.get(rank, 0.0) for rank in going), default=0.0)
    if len(ages) < len(ranks) or youngest_s < patience_s or not going:
        return None
    writes = {rank for rank, state in ranks.items() if is_alive(ranks, state, now_ns)}
    lives = writes | {r for r, state in ranks.items() if _has_process(state, nodes, now_ns)}
    if not lives & going:
        return None
    scene = _Scene(ranks, ages, writes, lives, over)
    behind = _behind(scene)
    may_save = youngest_s < limits.unmeasured_s and _between_steps(scene, behind)
    if may_save and over:
        return None  # the last to finish: it saves or evaluates at the end
    alone = behind[0] if len(behind) == 1 else None
    return Verdict(
        "HUNG",
        "warn" if may_save else "critical",
        None,
        _headline(scene, behind),
        rank=alone,
        phase=None if alone is None else MARKERS.get(ranks[alone].beats[-1].marker or ""),
        evidence=(
            *_last_seen(scene, behind),
            *(("a long checkpoint would look the same so far",) if may_save else ()),
        ),
        advice=_unhang(ranks, behind[0] if behind else min(ages), bool(behind)),
        cause="silent" if going - writes else None,
    )


def _between_steps(scene: _Scene, behind: Sequence[int]) -> bool:
    """Whether one that is waited for, or any where none is, may be doing what is no training."""
    chosen = [rank for rank in behind or scene.ranks if rank not in scene.over]
    return any(scene.ranks[rank].beats[-1].marker in _BETWEEN for rank in chosen)


def _has_process(state: RankState, nodes: Mapping[str, NodeState], now_ns: int) -> bool:
    """Whether the sampler of its host still sees a rank's process."""
    pid = integer(state.header.get("pid"))
    return any(n.host == state.host and n.has_process(pid, now_ns) for n in nodes.values())


def _behind(scene: _Scene) -> list[int]:
    """The ranks that the others wait for; none where all have got equally far."""
    going = [rank for rank in sorted(scene.ages_s) if rank not in scene.over]
    first = min(_place(scene.ranks[rank]) for rank in going)
    left = [r for r, bad in scene.over.items() if bad or _place(scene.ranks[r]) < first]
    return sorted(left) or _least_far(scene, going) or (going if scene.over else [])


def _least_far(scene: _Scene, every: Sequence[int]) -> list[int]:
    """Those of these ranks that hold the others of them up; none where all are equally far."""
    silent = [rank for rank in every if rank not in scene.writes]
    if silent and len(silent) < len(every):
        gone = [rank for rank in silent if rank not in scene.lives]
        return gone or silent
    places = {rank: _place(scene.ranks[rank]) for rank in every}
    if any(scene.ranks[rank].beats[-1].step is None for rank in every):
        return []
    least = min(places.values())
    behind = [rank for rank in every if places[rank] == least]
    return behind if len(behind) < len(every) else []


def _place(state: RankState) -> tuple[int, int]:
    """How far a rank has got: its step, and how far it is there."""
    beat, order = state.beats[-1], _FAR_ON_GPU if state.cuda else _FAR
    return (beat.step or 0, order.get(beat.marker or "", 0))


def _headline(scene: _Scene, behind: Sequence[int]) -> str:
    """Which ranks hang, where they were last seen and when, and what the others do."""
    wait = len(scene.ranks.keys() - scene.over.keys() - set(behind))
    rest = (
        "" if not behind or not wait else "; the other waits" if wait == 1 else "; the others wait"
    )
    chosen = behind or sorted(scene.ages_s)
    places = {_where(scene.ranks[rank]) for rank in chosen}
    where = f"{places.pop()} " if len(places) == 1 else ""
    seen = f"last seen {where}{words.age(min(scene.ages_s[rank] for rank in chosen))} ago"
    if len(scene.ranks) == 1:
        return words.headline(f"The run hangs: {seen}")
    does = "hangs" if len(chosen) == 1 else "hang"
    if behind and behind[0] in scene.over:
        does = "ended"
    elif behind and behind[0] not in scene.writes:
        does = "is " if len(chosen) == 1 else "are "
        does += "silent" if behind[0] in scene.lives else "gone"
    who = words.capital(words.ranks(chosen)) if behind else _all(len(chosen))
    counted = who if len(chosen) == 1 else f"{len(chosen)} ranks"
    return words.headline(*(f"{which} {does}: {seen}{rest}" for which in (who, counted)))


def _all(count: int) -> str:
    return "Both ranks" if count == 2 else f"All {count} ranks"


def _where(state: RankState) -> str | None:
    """Where a rank was last seen, in a few words."""
    marker = state.beats[-1].marker
    if marker == "E0":
        return "evaluating"
    return words.place(MARKERS[marker]) if marker in MARKERS else state.doing()


def _last_seen(scene: _Scene, behind: Sequence[int]) -> list[str]:
    """Where each of the first ranks was last seen, those that are waited for first."""
    ordered = sorted(scene.ages_s, key=lambda rank: (rank not in behind, -scene.ages_s[rank]))
    found = []
    for rank in ordered[:_MOST_RANKS]:
        state = scene.ranks[rank]
        waits = behind and rank not in behind and rank not in scene.over
        seen = f"rank {rank} {'waits,' if waits else 'was'} last seen {state.doing()}"
        seen += f", {words.age(scene.ages_s[rank])} ago"
        step = state.beats[-1].step
        seen += f", in step {step}" if step is not None else ""
        if rank in scene.over:
            seen += "; its script has ended" + (" with an error" if scene.over[rank] else "")
        elif rank not in scene.writes:
            alive = rank in scene.lives
            seen += "; it writes nothing any more" if alive else "; its process is gone"
        found.append(seen)
    return found


def _unhang(ranks: Ranks, rank: int, differ: bool) -> tuple[str, ...]:
    """How to find out why."""
    found = [
        "torchtop stacks, or t in the viewer, shows where each rank's Python code stands",
        "look for a collective that not all ranks call: in `if rank == 0:`, or after a loop that "
        "one rank leaves early"
        if differ
        else None,
        "NCCL_DEBUG=INFO and TORCH_NCCL_TRACE_BUFFER_SIZE tell which collective is stuck"
        if ranks[rank].backend == "nccl"
        else None,
    ]
    return tuple(text for text in found if text)
