"""How long ago something was on a rank's host, whatever its clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .ranks import RankState
from .rows import integer, number

_FRESH_NS = 5_000_000_000
"""A rank whose last beat is older than this (ten beats) has ended, or stands still altogether."""

Ranks = Mapping[int, RankState]


def age_ns(ranks: Ranks, state: RankState, then_ns: int, now_ns: int) -> int:
    """Age of a moment on a rank's host.

    Monotonic clocks of different boots do not compare; their wall clocks, paired with them in the
    headers, do as well as they are synchronised.

    Args:
        ranks: all of them; `now_ns` is on the clock of the lowest one's host.
        state: the rank.
        then_ns: on its host's monotonic clock.
        now_ns: the present.
    """
    reference, header = ranks[min(ranks)].header, state.header
    if header.get("boot_id") == reference.get("boot_id"):
        return max(0, now_ns - then_ns)
    return max(0, now_ns + _wall_offset_ns(reference) - then_ns - _wall_offset_ns(header))


def _wall_offset_ns(header: dict[str, Any]) -> int:
    wall, mono = number(header.get("wall_s")), integer(header.get("mono_ns"))
    return 0 if wall is None or mono is None else int(wall * 1e9) - mono


def marker_age_s(ranks: Ranks, state: RankState, now_ns: int) -> float | None:
    """Seconds since a rank passed its last marker."""
    if not state.beats or state.beats[-1].marker_ns is None:
        return None
    return age_ns(ranks, state, state.beats[-1].marker_ns, now_ns) / 1e9


def is_alive(ranks: Ranks, state: RankState, now_ns: int) -> bool:
    """Whether a rank's probe still writes."""
    return bool(state.beats) and age_ns(ranks, state, state.beats[-1].mono_ns, now_ns) <= _FRESH_NS
