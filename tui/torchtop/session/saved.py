"""A summary as it was saved, if it is a whole one."""

from __future__ import annotations

from types import NoneType
from typing import Any

from torchtop.session.paths import SessionPaths, read_json
from torchtop.session.values import number

_OBJECTS = ("options", "step_ms", "throughput", "phases", "probe", "versions")
_LISTS = ("gpus", "ranks")
_OBJECTS_IF_ANY = ("exit", "verdict", "loss")
_NUMBERS_IF_ANY = ("wall_s", "world_size", "steps", "warmup_steps")
_VALUES = (
    *("id", "name", "workload", "status", "started_at", "wall_s", "exit", "world_size", "device"),
    *("synthetic_data", "steps", "warmup_steps", "verdict", "loss"),
)


def saved_summary(paths: SessionPaths) -> dict[str, Any] | None:
    """``summary.json``; None when it is absent, or has not what every summary has.

    It can then be made again from the rest of the directory.
    """
    summary = read_json(paths.summary) or {}
    whole = (
        all(isinstance(summary.get(name), dict) for name in _OBJECTS)
        and all(isinstance(summary.get(name), list) for name in _LISTS)
        and all(name in summary for name in _VALUES)
        and all(isinstance(summary[name], (dict, NoneType)) for name in _OBJECTS_IF_ANY)
        and all(_is_number_if_any(summary[name]) for name in _NUMBERS_IF_ANY)
    )
    return summary if whole else None


def _is_number_if_any(value: Any) -> bool:
    return value is None or number(value) is not None
