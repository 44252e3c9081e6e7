"""How far a run has come, by its last analysis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchtop.session.paths import SessionPaths
from torchtop.session.records import Record
from torchtop.session.tail import Tail
from torchtop.session.values import child

_LAST_BYTES = 256 << 10
"""Enough for the last analysis of many ranks."""

_NAMES = ("total_steps", "eta_s", "epoch", "epoch_batch", "epoch_batches", "epoch_eta_s")


def last_analyses(paths: SessionPaths) -> list[Record]:
    """The header of the analyses, and the last of them, oldest first; the header may be missing."""
    return Tail(paths.analysis, last_bytes=_LAST_BYTES).poll()


def last_analysis(records: Sequence[Record]) -> Record:
    """The last one of `last_analyses`; empty where there is none."""
    return next((r for r in reversed(records) if r.get("kind") == "analysis"), {})


def progress(paths: SessionPaths, status: str) -> dict[str, Any]:
    """The ``progress`` of the last ``analysis``; of a run that is over, no time is left.

    Args:
        paths: the session.
        status: as in its summary.
    """
    told = dict(child(last_analysis(last_analyses(paths)), "progress"))
    if status != "running":
        told |= {"eta_s": None, "epoch_eta_s": None}
    return {name: told.get(name) for name in _NAMES}
