"""A rank's file stays within 100 MB a day, and has full detail while somebody is likely to look."""

from __future__ import annotations

from torchtop.probe.allowance import Allowance

DAY_S = 86_400
FULL_BYTES_PER_S, SPARING_BYTES_PER_S = 4500, 850
"""As measured on two H200s at 20 recorded steps a second; and as the sparing kind comes to."""


def test_a_day_of_a_rank_is_under_100_megabytes() -> None:
    allowance = Allowance(1000.0)
    written, full_s, changes, was = 0, 0, 0, False
    for second in range(DAY_S):
        sparing = allowance.is_spent(written, 1000.0 + second)
        written += SPARING_BYTES_PER_S if sparing else FULL_BYTES_PER_S
        full_s += not sparing
        changes += sparing != was
        was = sparing
    assert written < 100e6
    # the first three quarters of an hour in full, and no flickering after
    assert full_s > 45 * 60
    assert changes < 10


def test_a_run_that_writes_little_is_never_stinted() -> None:
    allowance = Allowance(0.0)
    assert not any(allowance.is_spent(900 * second, second) for second in range(DAY_S))
