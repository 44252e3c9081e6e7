"""How far a run has come, by its last analysis."""

from __future__ import annotations

from typing import Any

from torchtop.session.paths import SessionPaths
from torchtop.session.tail import Tail
from torchtop.session.values import child

_LAST_BYTES = 256 << 10
"""Enough for the last analysis of many ranks."""

_NAMES = ("total_steps", "eta_s", "epoch", "epoch_batch", "epoch_batches", "epoch_eta_s")


def progress(paths: SessionPaths, status: str) -> dict[str, Any]:
    """The ``progress`` of the last ``analysis``; of a run that is over, no time is left.

    Args:
        paths: the session.
        status: as in its summary.
    """
    told: dict[str, Any] = {}
    for record in Tail(paths.analysis, last_bytes=_LAST_BYTES).poll():
        if record.get("kind") == "analysis":
            told = dict(child(record, "progress"))
    if status != "running":
        told |= {"eta_s": None, "epoch_eta_s": None}
    return {name: told.get(name) for name in _NAMES}
