"""Numbers as a report shows them; a value that is not known is a dash."""

from __future__ import annotations

from typing import Any

from torchtop.session.values import number

NA = "–"


def figure_of(value: Any, digits: int = 4) -> str:
    """A number to a few digits, with groups of thousands."""
    known = number(value)
    if known is None:
        return NA
    return f"{known:,.0f}" if abs(known) >= 1000 else f"{known:.{digits}g}"


def with_unit(value: Any, unit: str, digits: int = 4) -> str:
    """A number and its unit."""
    return NA if number(value) is None else f"{figure_of(value, digits)} {unit}"


def percent(share: Any, digits: int = 1) -> str:
    """A share of 0..1 in per cent."""
    known = number(share)
    return NA if known is None else f"{known:.{digits}%}"


def gib(size: Any) -> str:
    """Bytes in GiB."""
    known = number(size)
    return NA if known is None else f"{known / 2**30:.3g}"


def duration(seconds: Any) -> str:
    """Seconds as ``m:ss`` or ``h:mm:ss``."""
    known = number(seconds)
    if known is None or known < 0:
        return NA
    hours, rest = divmod(int(known), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
