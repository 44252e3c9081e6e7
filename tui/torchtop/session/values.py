"""Reading fields of records and summaries that somebody else may have written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer that no float holds
        return None


def child(record: Any, key: str) -> Mapping[str, Any]:
    """A field that should be an object; empty for anything else."""
    value = record.get(key) if isinstance(record, (dict, Mapping)) else None
    return value if isinstance(value, (dict, Mapping)) else {}


def children(record: Any, key: str) -> list[Mapping[str, Any]]:
    """A field that should be a list of objects; what is none is left out."""
    return [entry for entry in items(record, key) if isinstance(entry, (dict, Mapping))]


def items(record: Any, key: str) -> list[Any]:
    """A field that should be a list; empty for anything else."""
    value = record.get(key) if isinstance(record, (dict, Mapping)) else None
    return list(value) if isinstance(value, (list, tuple)) else []
