"""Calls that make a host wait for its GPU, as an inspection found them, told in a few words. Pure.

Whatever a record holds is foreign: what has not the expected shape is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

_TEXT_CHARS = 60


def calls_of(inspected: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The well-formed calls of an ``inspected`` record, the most frequent first."""
    calls = inspected.get("calls")
    for call in calls if isinstance(calls, (list, tuple)) else ():
        if isinstance(call, Mapping) and isinstance(call.get("count"), int):
            yield call


def said(call: Mapping[str, Any]) -> str:
    """A call in a few words: ``loss.item() at train.py:88, 1 a step``.

    The line is the script's own; what a library calls within it stands beside it.
    """
    library = call.get("library")
    within = ""
    if isinstance(library, Mapping):
        within = f" ({_what(library, None)} in {_where(library, folders=1)})"
    return f"{_what(call, call.get('call'))} at {_where(call)}{within}, {call['count']} a step"


def _what(place: Mapping[str, Any], name: Any) -> str:
    text = place.get("text")
    if not isinstance(text, str):
        return name if isinstance(name, str) else "a call"
    return text if len(text) <= _TEXT_CHARS else text[: _TEXT_CHARS - 3] + "..."


def _where(place: Mapping[str, Any], folders: int = 0) -> str:
    parts = PurePath(str(place.get("file"))).parts[-1 - folders :]
    return f"{'/'.join(parts)}:{place.get('line')}"
