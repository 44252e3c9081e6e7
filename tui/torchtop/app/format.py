"""Numbers as people read them. A value that is not there is `NA`, never 0."""

from __future__ import annotations

import math
from typing import Any

NA = "–"


def known(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def _digits(value: float) -> str:
    """Three significant digits at most, no exponent, for 0 <= value < 1000."""
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def count(value: Any) -> str:
    """An integer with thin groups: ``12 480``."""
    number = known(value)
    return NA if number is None else f"{round(number):,}".replace(",", " ")


def quantity(value: Any, unit: str = "") -> str:
    """A number with an SI prefix: ``1.23 k``, ``45.6 M``."""
    number = known(value)
    if number is None:
        return NA
    sign, size = ("-", -number) if number < 0 else ("", number)
    for prefix, scale in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        if size < 999.5 * scale:
            text = _digits(size / scale) if scale > 1 or size % 1 else f"{size:.0f}"
            return f"{sign}{text} {prefix}{unit}".rstrip()
    return f"{number:.2e}"


def rank_count(number: int, whole: int | None = None) -> str:
    """``1 rank``, ``2 ranks``, ``1 of 2 ranks``."""
    of = "" if whole is None else f" of {whole}"
    return f"{number}{of} rank{'' if (number if whole is None else whole) == 1 else 's'}"


def rate(value: Any) -> str:
    """A rate without its unit: exact to 10 000 (``2 151``), then with a prefix."""
    number = known(value)
    if number is None:
        return NA
    if abs(number) < 100:
        return _digits(abs(number)) if number >= 0 else "-" + _digits(-number)
    return count(number) if abs(number) < 100_000 else quantity(number)


def gib(value: Any) -> str:
    """Bytes as GiB without the unit: ``0.41``, ``12.3``, ``141``."""
    number = known(value)
    return NA if number is None else _digits(number / 2**30)


def size(value: Any) -> str:
    """Bytes with a binary unit: ``512 MiB``."""
    number = known(value)
    if number is None:
        return NA
    for unit, scale in (("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)):
        if number < 1000 * scale:
            return f"{number:.0f} B" if scale == 1 else f"{_digits(number / scale)} {unit}"
    return f"{_digits(number / 2**40)} TiB"


def short_size(value: Any) -> str:
    """Bytes in at most five cells: ``512M``, ``1.2G``."""
    number = known(value)
    if number is None:
        return NA
    for unit, scale in (("B", 1), ("K", 2**10), ("M", 2**20), ("G", 2**30), ("T", 2**40)):
        if number < 1000 * scale or unit == "T":
            value_ = number / scale
            return f"{value_:.1f}{unit}" if value_ < 9.95 and scale > 1 else f"{value_:.0f}{unit}"
    return NA


def percent(share: Any) -> str:
    """A share of 0..1 as ``38 %``."""
    number = known(share)
    return NA if number is None else percent_of(number * 100)


def percent_of(value: Any) -> str:
    """A percentage of 0..100 as ``38 %``; below ten with one digit."""
    number = known(value)
    if number is None:
        return NA
    return f"{number:.0f} %" if number >= 9.95 or number < 0.05 else f"{number:.1f} %"


def ms(value: Any) -> str:
    """Milliseconds: ``0.41 ms``, ``118 ms``, ``12.4 s``."""
    number = known(value)
    if number is None:
        return NA
    if abs(number) >= 9_999.5:
        return f"{_digits(number / 1e3)} s"
    if abs(number) >= 999.5:
        return f"{number:.0f} ms"
    return f"{_digits(abs(number)) if number >= 0 else '-' + _digits(-number)} ms"


def ms_number(value: Any) -> str:
    """Milliseconds without the unit."""
    number = known(value)
    if number is None:
        return NA
    return f"{number:.0f}" if number >= 999.5 else _digits(max(0.0, number))


def duration(seconds: Any) -> str:
    """A span of time: ``8 s``, ``3:07``, ``1:02:33``, ``2 d 4 h``."""
    number = known(seconds)
    if number is None or number < 0:
        return NA
    whole = int(number)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    if whole < 100 * 3600:
        return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{whole // 86400} d {whole // 3600 % 24} h"


def clock(seconds: Any) -> str:
    """A position in a session: ``00:08``, ``1:02:33``."""
    number = known(seconds)
    if number is None or number < 0:
        return NA
    whole = int(number)
    if whole < 3600:
        return f"{whole // 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def gain(bound: Any) -> str:
    """The upper bound of a speed-up in words: ``up to 1.6x faster``."""
    number = known(bound)
    if number is None or number < 1.005:
        return ""
    digits = 2 if number < 1.1 else 1 if number < 9.95 else 0
    return f"up to {number:.{digits}f}x faster"


def ghz(mhz: Any) -> str:
    """A clock: ``1.98`` (GHz)."""
    number = known(mhz)
    return NA if number is None else f"{number / 1000:.2f}"
