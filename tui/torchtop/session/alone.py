"""Ranks that train each by itself: the rule that a hint to the user and the verdicts share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_alone(told: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a rank has told that it synchronises nothing with others.

    Args:
        told: its ``facts`` by subject.
    """
    return not told.get("ddp") and told.get("collectives", {}).get("count") == 0
