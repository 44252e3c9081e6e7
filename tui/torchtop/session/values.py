"""Reading fields of records and summaries that somebody else may have written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_MOST_WHOLE = 2**63 - 1
_MOST_REAL = 1e100
"""Larger numbers are of no quantity that is recorded: computing with them only overflows."""

_FLAT = bytes.maketrans(b"123456789E", b"000000000e")
_SIGNS_OF_LARGE = (b"0" * 19, b"e000", b"e+000")
_LARGE = re.compile(rb"(?<![0.])0{19}|e\+?000")
"""What a line with a number out of bounds has, once each digit is a zero; the first, quickly seen,
may be the digits of a fraction as well."""


def _whole(text: str) -> int | None:
    value = int(text)
    return value if abs(value) <= _MOST_WHOLE else None


def _real(text: str) -> float | None:
    value = float(text)
    return value if abs(value) <= _MOST_REAL else None


# NaN and infinities are not JSON, but Python's reader takes them.
_FAST = json.JSONDecoder(parse_constant=lambda _: None)
_CAREFUL = json.JSONDecoder(parse_constant=lambda _: None, parse_int=_whole, parse_float=_real)


def decode(text: bytes) -> Any:
    """A JSON value, in which each number that is absurdly large is None: it is not known.

    Raises:
        ValueError: it is no JSON, or no UTF-8.
        RecursionError: it is nested too deeply.
    """
    flat = text.translate(_FLAT)  # far cheaper than a look at each number, or than _LARGE alone
    large = any(sign in flat for sign in _SIGNS_OF_LARGE) and _LARGE.search(flat)
    return (_CAREFUL if large else _FAST).decode(text.decode("utf-8"))


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
