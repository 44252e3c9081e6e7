"""One step of every rank, looked at for calls that make the host wait: asking, and telling."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtop.session.calls import calls_of, said
from torchtop.session.follow import Follower
from torchtop.session.locks import is_locked
from torchtop.session.paths import SessionError, SessionPaths, leave_request
from torchtop.session.snapshot import Rank, Snapshot

_ANSWER_S = 10.0
"""A supervisor looks for requests four times a second and a rank twice, or once in two seconds
where it writes sparingly; then two steps begin."""

_STEPS = 4
_LONGEST_S = 120.0
_POLL_S = 0.2


@dataclass(frozen=True)
class Inspected:
    """What one rank found.

    Attributes:
        rank: its number.
        step: the step that was looked at, or None.
        calls: as in an ``inspected`` record.
        problem: why nothing was looked at, or None.
    """

    rank: int
    step: int | None = None
    calls: tuple[Mapping[str, Any], ...] = ()
    problem: str | None = None


def take(paths: SessionPaths, requested_by: str) -> list[Inspected]:
    """Have every rank of a live session look at one step, and wait for what it finds.

    Args:
        paths: the session.
        requested_by: who asks, for the record.

    Raises:
        SessionError: the session does not run, or it has no rank that trains.
    """
    if not any(is_locked(node.lock) for node in paths.nodes()):
        raise SessionError(f"{paths.id} is not running: it has no step to inspect")
    follower = Follower(paths.root)
    seen = follower.poll()
    if not any(_trains(rank) for rank in seen.ranks):
        raise SessionError(f"no rank of {paths.id} trains yet: inspect it after its first steps")
    request = request_inspection(paths, requested_by)
    wait_s = min(_LONGEST_S, _ANSWER_S + _STEPS * _step_s(seen))
    until = time.monotonic() + wait_s
    while time.monotonic() < until and seen.live:
        if all(_has_answered(rank, request) for rank in seen.ranks if _trains(rank)):
            break
        time.sleep(_POLL_S)
        seen = follower.poll()
    late = f"it has not come to the end of a step within {wait_s:.0f} s; torchtop show tells later"
    return [
        found_by(rank) if _has_answered(rank, request) else Inspected(rank.rank, problem=late)
        for rank in seen.ranks
        if _trains(rank) or _has_answered(rank, request)
    ]


def request_inspection(paths: SessionPaths, requested_by: str) -> str:
    """Ask every node's supervisor to have its ranks inspect one step each.

    Returns:
        The request's id: the ranks' ``inspected`` records name it.

    Raises:
        SessionError: the session directory cannot be written.
    """
    request = secrets.token_hex(4)
    leave_request(paths, "inspect", requested_by, "to inspect a step", id=request)
    return request


def found_by(rank: Rank) -> Inspected:
    """What a rank has told of its last inspection."""
    told = rank.inspected
    step, problem = told.get("step"), told.get("problem")
    return Inspected(
        rank.rank,
        step if isinstance(step, int) else None,
        tuple(calls_of(told)),
        None if problem is None else str(problem),
    )


def _trains(rank: Rank) -> bool:
    return rank.marker is not None and rank.exit_code is None


def _has_answered(rank: Rank, request: str) -> bool:
    return rank.inspected.get("id") == request


def _step_s(seen: Snapshot) -> float:
    mean = ((seen.analysis or {}).get("step_ms") or {}).get("mean")
    return float(mean) / 1000 if isinstance(mean, (int, float)) else 0.0


@dataclass(frozen=True)
class Line:
    """A line of what was found.

    Attributes:
        kind: ``rank``, ``call`` or ``note``.
        text: foreign text, as it is.
    """

    kind: str
    text: str


def tell(found: Sequence[Inspected]) -> list[Line]:
    """What the ranks found as lines; ranks that found the same stand together."""
    groups: dict[tuple[str, ...], list[Inspected]] = {}
    for one in found:
        lines = (one.problem,) if one.problem else tuple(said(call) for call in one.calls)
        groups.setdefault(("problem" if one.problem else "", *lines), []).append(one)
    told: list[Line] = []
    for (problem, *texts), same in groups.items():
        told.append(Line("rank", _head(same, len(texts), bool(problem))))
        told += [Line("note" if problem else "call", text) for text in texts]
    return told


def _head(same: Sequence[Inspected], calls: int, problem: bool) -> str:
    ranks = [one.rank for one in same]
    whose = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_ranges(ranks)}"
    if problem:
        return f"{whose}: not inspected"
    steps = {one.step for one in same}
    step = f", step {steps.pop()}" if len(steps) == 1 else ""
    if not calls:
        return f"{whose}{step}: no call that waits for the GPU was seen"
    wait = "1 place waits" if calls == 1 else f"{calls} places wait"
    return f"{whose}{step}: {wait} for the GPU"


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in order, those that follow each other as ``0-3``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(str(end) for end in part) for part in parts)
