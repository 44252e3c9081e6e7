"""Whether there is a run to judge: ranks that are missing, stand still, or are not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import hang, report, words
from .ages import Ranks, age_ns, is_alive
from .devices import NodeState
from .endings import Endings
from .frontier import FrontierStep
from .thresholds import Thresholds
from .unseen import Unseen
from .verdict import Verdict, undecided
from .window import Window


def nothing_to_judge(
    ranks: Ranks,
    nodes: Mapping[str, NodeState],
    world_size: int | None,
    window: Window | None,
    steps: Sequence[FrontierStep],
    *,
    now_ns: int,
    limits: Thresholds,
    unseen: Unseen,
    endings: Endings,
) -> Verdict | None:
    """Why the steps at hand do not say what the run does now; None where they do.

    Args:
        ranks: by rank.
        nodes: by the name of their directory.
        world_size: how many ranks there should be.
        window: the window, or None.
        steps: its steps.
        now_ns: the present, on the clock of the lowest rank's host.
        limits: thresholds.
        unseen: ranks whose probe took itself out.
        endings: ranks whose script has ended.
    """
    expected = range(world_size or unseen.world_size or 0)
    absent = [rank for rank in expected if rank not in ranks]
    blind = unseen.verdict(absent)
    if blind is not None:
        return blind
    if not ranks or world_size is None:
        return undecided("No rank has finished a backward pass yet")
    if absent:
        return undecided(
            f"Nothing has been heard of {words.ranks(absent)} yet",
            f"{len(ranks)} of {world_size} ranks report",
        )
    patience_s = _patience_s(ranks, window, limits)
    over = endings.of(ranks)
    hung = hang.find(ranks, nodes, now_ns, patience_s, limits, over)
    longest_s = max(limits.unmeasured_s, patience_s)
    going_on = steps if len(over) < len(ranks) else ()
    return hung or unseen.verdict(expected) or _unmeasured(ranks, going_on, now_ns, longest_s)


def _patience_s(ranks: Ranks, window: Window | None, limits: Thresholds) -> float:
    """How long ranks may pass no marker: longer than their steps and pauses have ever taken."""
    if window is None or window.from_step < limits.warmup_steps:
        return max(limits.hung_s, limits.hung_startup_s)
    longest_us = max((p.duration_us for s in ranks.values() for p in s.pauses), default=0)
    longest_step_us = max(window.durations_us, default=0)
    return max(
        limits.hung_s,
        limits.hung_steps * window.step_us / 1e6,
        limits.hung_pause * max(longest_us, longest_step_us) / 1e6,
    )


def _unmeasured(
    ranks: Ranks, steps: Sequence[FrontierStep], now_ns: int, patience_s: float
) -> Verdict | None:
    """A run that goes on, but of which the probes tell no steps any more."""
    off = report.probe(ranks)["disabled"]
    if off is not None:
        return undecided(words.headline(f"The run is no longer measured: {off}"), off)
    first = ranks[min(ranks)]
    if not steps or not is_alive(ranks, first, now_ns):
        return None
    age_s = age_ns(ranks, first, steps[-1].rows[first.rank].end_ns, now_ns) / 1e9
    if age_s < patience_s:
        return None
    return undecided(
        f"No step has been recorded for {words.age(age_s)}",
        f"rank {first.rank} was last seen {first.doing()}",
    )
