from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from torchtop.app import format as f

FORMS: list[Callable[[object], str]] = [
    f.count, f.quantity, f.rate, f.gib, f.size, f.short_size, f.percent, f.percent_of, f.ms,
    f.ms_number, f.duration, f.clock, f.ghz,
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, "text", True, [], {}])
def test_what_is_no_number_is_not_available_and_never_zero(
    form: Callable[[object], str], value: object
) -> None:
    assert form(value) == f.NA


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (f.count, 12480, "12 480"),
        (f.quantity, 0, "0"),
        (f.quantity, 999.6, "1.00 k"),
        (f.quantity, 1234, "1.23 k"),
        (f.quantity, 4_490_000, "4.49 M"),
        (f.rate, 8.464, "8.46"),
        (f.rate, 2151.4, "2 151"),
        (f.rate, 250_000, "250 k"),
        (f.gib, 41.2 * 2**30, "41.2"),
        (f.size, 1_573_888, "1.50 MiB"),
        (f.size, 12, "12 B"),
        (f.short_size, 3 * 2**30, "3.0G"),
        (f.short_size, 0, "0B"),
        (f.percent, 0.381, "38 %"),
        (f.percent, 0.026, "2.6 %"),
        (f.percent, 0, "0 %"),
        (f.percent, 1, "100 %"),
        (f.ms, 0.41, "0.41 ms"),
        (f.ms, 118.4, "118 ms"),
        (f.ms, 12_400, "12.4 s"),
        (f.duration, 8, "8 s"),
        (f.duration, 187, "3:07"),
        (f.duration, 3753, "1:02:33"),
        (f.duration, 86400 * 5 + 4 * 3600, "5 d 4 h"),
        (f.clock, 8, "00:08"),
        (f.ghz, 1980, "1.98"),
        (f.gain, 1.62, "up to 1.6x faster"),
        (f.gain, 1.06, "up to 1.06x faster"),
        (f.gain, 19.94, "up to 20x faster"),
    ],
)
def test_numbers_read_as_people_write_them(
    form: Callable[[object], str], value: object, text: str
) -> None:
    assert form(value) == text


def test_no_gain_is_not_told() -> None:
    assert f.gain(1.0) == f.gain(None) == ""
