"""Where a host waits for its device, and how long the device can be idle."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.made import row
from torchtop.diagnose.excess import Scale
from torchtop.diagnose.frontier import LOCAL_PHASES
from torchtop.diagnose.holes import Holes, holes
from torchtop.diagnose.thresholds import DEFAULT

SCALE = Scale.of(25_000, DEFAULT)


def told(lags: dict[str, int], hosts: dict[str, int], **device: int) -> Holes | None:
    """One step from lags and host times by phase; phases that are not named take 10."""
    known: dict[str, Any] = {
        "local_host_us": tuple(hosts.get(phase, 10) for phase in LOCAL_PHASES),
        "local_lag_us": tuple(lags.get(phase, 0) for phase in LOCAL_PHASES),
    }
    device = dict.fromkeys(LOCAL_PHASES, 10) | device
    return holes(row(lag_width_us=20, **device, **known), SCALE, DEFAULT)


def named(values: tuple[float, ...]) -> dict[str, float]:
    return {p: value for p, value in zip(LOCAL_PHASES, values, strict=True) if value > 20}


AHEAD = {"forward": 8_000, "backward": 16_000, "optimizer": 17_000}
COMPUTE = {"forward": 8_000, "backward": 10_000, "optimizer": 1_100}
ISSUE = {"forward": 2_000, "backward": 2_000, "optimizer": 100}


@pytest.mark.parametrize("place", ["other", "pre_optimizer"])
def test_a_lead_that_is_lost_between_phases_was_waited_for(place: str) -> None:
    found = told(AHEAD | {place: 5}, ISSUE | {place: 17_000}, **COMPUTE)

    assert found is not None
    assert named(found.blocked_us) == {place: 17_000 - 10}


def test_a_host_that_is_late_by_itself_has_not_waited() -> None:
    # given 40 ms between steps, in 23 of which the device has nothing to do
    found = told(AHEAD | {"other": 5}, ISSUE | {"other": 40_000}, **COMPUTE, other=23_000)

    assert found is not None
    assert not named(found.blocked_us)


def test_a_host_that_waits_for_data_has_not_waited_for_its_device() -> None:
    found = told(AHEAD | {"data": 5}, ISSUE | {"data": 17_000}, **COMPUTE)

    assert found is not None
    assert not named(found.blocked_us)


def test_a_wait_in_forward_is_what_launching_does_not_explain() -> None:
    waits = told({"backward": 8_000}, ISSUE | {"forward": 20_000}, **COMPUTE)
    launches = told({}, {"forward": 14_000, "backward": 14_000}, forward=9_000, backward=14_000)

    assert waits is not None
    assert launches is not None
    assert named(waits.blocked_us) == {"forward": 12_000}
    # what launching does explain is less than the device may have been idle at the most
    assert named(waits.idle_us)["forward"] == 3_000 < named(waits.most_us)["forward"]
    assert not named(launches.blocked_us)


def test_a_small_loss_of_lead_is_nothing() -> None:
    found = told({"other": 5}, ISSUE | {"other": 1_000}, **COMPUTE)

    assert found is not None
    assert not named(found.blocked_us)


def test_a_device_that_is_behind_has_been_busy_for_as_long() -> None:
    # given forward of 9 ms, at whose end the device is 5 ms behind a host that took 4 ms
    found = told({"forward": 5_000, "backward": 13_000}, {"forward": 4_000}, forward=9_000)

    assert found is not None
    assert named(found.idle_us) == {"forward": pytest.approx(4_000, abs=20)}


def test_nothing_is_known_without_lag_or_host_times() -> None:
    assert holes(row(forward=9_000), SCALE, DEFAULT) is None


def test_what_is_missing_in_one_phase_is_left_out() -> None:
    known = {"local_host_us": (None,) * 6, "local_lag_us": (0,) * 6}

    found = holes(row(forward=9_000, **known), SCALE, DEFAULT)

    assert found == Holes((0.0,) * 6, (0.0,) * 6, (0.0,) * 6)


def test_a_lag_that_is_too_uncertain_is_no_wait() -> None:
    lags, hosts = (0,) * 6, (17_000, 10, 17_000, 10, 10, 10)
    vague = row(lag_width_us=20_000, local_host_us=hosts, local_lag_us=lags)

    found = holes(vague, SCALE, DEFAULT)

    assert found is not None
    assert not any(found.blocked_us)
