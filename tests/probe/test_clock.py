"""The clock interval: lag from inequalities alone, on a simulated device whose truth is known."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import pytest

from probe.fake_gpu import FakeGpu
from probe.marks import mark
from torchtop.probe.clock import ClockInterval, CudaClock, HostClock, Mark

MS = 1_000_000
US = 1_000


@dataclass
class Device:
    """A device whose clock is `offset_ns` behind the host's, and drifts against it."""

    offset_ns: int = 123_456_789_012
    drift_ppm: float = 0.0

    def clock(self, host_ns: int) -> int:
        return host_ns - self.offset_ns + round(host_ns * self.drift_ppm / 1e6)

    def offset(self, host_ns: int) -> int:
        """Host time minus device time of one instant."""
        return host_ns - self.clock(host_ns)


def run(
    device: Device, seconds: float, step_ms: float, lag_ms: float, seed: int = 1
) -> tuple[ClockInterval, int]:
    """Eight markers a step, each polled at the marks that follow, `lag_ms` behind the host."""
    chance = random.Random(seed)
    interval = ClockInterval()
    host = 1_000_000 * MS
    waiting: list[tuple[int, int, int]] = []
    for _ in range(int(seconds * 1e3 / step_ms * 8)):
        host += round(step_ms / 8 * MS * chance.uniform(0.2, 1.8))
        late = 5 * US + round(lag_ms * MS * chance.uniform(0.9, 1.1))
        waiting.append((host, host + late, 0))
        while waiting:
            enqueued, done, not_done = waiting[0]
            if done > host:
                waiting[0] = (enqueued, done, host)
                break
            waiting.pop(0)
            interval.add(device.clock(done), enqueued, not_done, host)
    return interval, host


@pytest.mark.parametrize("offset_ns", [0, 1, 10**15, -(10**15)])
@pytest.mark.parametrize("drift_ppm", [0.0, 20.0, -20.0])
@pytest.mark.parametrize("lag_ms", [0.0, 0.5, 30.0])
def test_the_offset_lies_in_the_interval(offset_ns: int, drift_ppm: float, lag_ms: float) -> None:
    device = Device(offset_ns, drift_ppm)

    interval, now = run(device, seconds=20, step_ms=10, lag_ms=lag_ms)

    assert interval.bounds is not None
    low, high = interval.bounds
    # A window of two seconds and the one before it: what drifts apart meanwhile is the error.
    drifted = abs(drift_ppm) / 1e6 * 4e9
    assert low - drifted <= device.offset(now) <= high + drifted
    assert high - low <= 2 * MS


def test_a_device_that_is_the_limit_gives_a_narrow_interval() -> None:
    interval, _ = run(Device(), seconds=3, step_ms=10, lag_ms=30)

    assert interval.bounds is not None
    low, high = interval.bounds
    assert 0 <= high - low <= 100 * US


def test_nothing_is_known_before_the_first_marker() -> None:
    assert ClockInterval().bounds is None


def test_one_marker_gives_bounds() -> None:
    interval = ClockInterval()
    interval.add(device_ns=100, enqueued_ns=1_000, not_done_ns=0, done_ns=1_500)
    assert interval.bounds == (900, 1_400)

    interval.add(device_ns=200, enqueued_ns=1_050, not_done_ns=1_250, done_ns=1_550)
    assert interval.bounds == (1_050, 1_350)


def test_a_clock_that_jumps_is_believed_after_a_window() -> None:
    interval = ClockInterval()
    for second in range(10):
        at = second * 1000 * MS
        interval.add(at, at, 0, at + 100)
    for second in range(10, 20):
        at = second * 1000 * MS
        interval.add(at - 5 * MS, at, 0, at + 100)

    assert interval.bounds == (5 * MS, 5 * MS + 100)


def test_on_a_cpu_a_marker_is_passed_at_once_and_never_lags() -> None:
    clock = HostClock()

    marks = [clock.stamp("B0"), clock.stamp("B1", True)]
    clock.refresh_stream()
    clock.touch(marks[1])

    assert clock.resolve(marks)
    assert [mark.lag_ns for mark in marks] == [0, 0]
    assert marks[0].device_ns == 0
    assert marks[1].device_ns == marks[1].host_ns - marks[0].host_ns
    assert marks[1].extra is True


def stamped(clock: CudaClock, codes: str) -> list[Mark]:
    return [clock.stamp(code) for code in codes.split()]


def test_a_step_resolves_once_its_last_marker_is_passed() -> None:
    gpu = FakeGpu()
    clock = CudaClock(gpu, device=3)
    marks = stamped(clock, "B1 D0 D1 B0")

    gpu.passes(3, ms=2.5)
    assert not clock.resolve(marks)
    assert [mark.device_ns for mark in marks] == [None] * 4

    gpu.passes(1, ms=1.0)
    assert clock.resolve(marks)
    assert [mark.device_ns for mark in marks] == [0, 2_500_000, 5_000_000, 6_000_000]
    assert all(mark.lag_ns is not None for mark in marks)
    assert {stream for _, stream in gpu.recorded} == {"stream of 3"}


def test_one_question_settles_a_step_and_none_an_asked_one() -> None:
    gpu = FakeGpu()
    clock = CudaClock(gpu, device=0)
    marks = stamped(clock, "B1 D0 D1 B0 BC B1")
    gpu.passes(6)

    clock.touch(marks[-1])
    clock.touch(marks[-1])
    assert clock.resolve(marks)

    assert gpu.queries == 1


def test_a_step_over_two_streams_waits_for_both() -> None:
    gpu = FakeGpu()
    clock = CudaClock(gpu, device=0)
    first = stamped(clock, "B1 D0 D1")
    gpu.stream = "another stream of {}"
    clock.refresh_stream()
    second = stamped(clock, "B0 B1")
    for at, made in enumerate(second, 100):
        made.event.at = float(at)

    assert not clock.resolve([*first, *second])

    for at, made in enumerate(first, 90):
        made.event.at = float(at)
    assert clock.resolve([*first, *second])
    assert [mark.device_ns for mark in second] == [10_000_000, 11_000_000]


def test_steps_share_the_marker_between_them() -> None:
    gpu = FakeGpu()
    clock = CudaClock(gpu, device=0)
    first = stamped(clock, "B1 D0 B1")
    second = [first[-1], *stamped(clock, "D0 B1")]
    gpu.passes(5, ms=4.0)

    assert clock.resolve(first)
    assert clock.resolve(second)

    assert [mark.device_ns for mark in second] == [8_000_000, 12_000_000, 16_000_000]


def test_markers_that_are_not_measured_record_nothing_and_hold_nothing_up() -> None:
    gpu = FakeGpu()
    clock = CudaClock(gpu, device=0)
    light = [mark(code, at) for at, code in enumerate(("B1", "D0", "B1"))]

    assert clock.resolve(light)

    assert [mark.device_ns for mark in light] == [None] * 3
    assert (gpu.queries, gpu.recorded) == (0, [])


def test_a_marker_that_is_passed_again_counts_once() -> None:
    gpu = FakeGpu()
    clock = CudaClock(gpu, device=0)
    marks = stamped(clock, "B1 E0 E1")
    gpu.passes(3)
    before = marks[2].host_ns

    clock.stamp_again(marks[2])
    assert marks[2].host_ns > before
    assert not clock.resolve(marks)

    gpu.passes(1, ms=7.0)
    assert clock.resolve(marks)
    assert len(gpu.recorded) == 4


def test_events_are_used_again() -> None:
    gpu = FakeGpu()
    clock = CudaClock(gpu, device=0)
    last = clock.stamp("B1")
    for _ in range(200):
        step = [last, *stamped(clock, "D0 B0 B1")]
        gpu.passes(4)
        assert clock.resolve(step)
        last = step[-1]

    assert gpu.made <= 8


def test_nothing_is_recorded_or_asked_while_a_graph_is_captured() -> None:
    gpu = FakeGpu()
    clock = CudaClock(gpu, device=0)
    marks = [clock.stamp("D0")]
    gpu.passes(1)

    clock.paused = True
    marks.append(clock.stamp("D1"))
    clock.touch(marks[0])
    clock.stamp_again(marks[0])
    assert (gpu.queries, len(gpu.recorded)) == (0, 1)

    clock.paused = False
    assert clock.resolve(marks)
    assert marks[1].device_ns is None


def test_a_marker_knows_how_long_the_launch_queue_held_it_up() -> None:
    gpu = FakeGpu()
    clock = CudaClock(gpu, device=0)
    free = clock.stamp("D0")
    # given a queue that has no room for 30 ms
    clock._record_event = lambda event, stream: time.sleep(0.03)

    held = clock.stamp("D0")

    assert free.held_ns < 30 * MS <= held.held_ns + 20 * US
    assert clock.waited_ns == free.held_ns + held.held_ns
    # and one that is passed again forgets the first time
    clock._record_event = lambda event, stream: None
    clock.stamp_again(held)
    assert held.held_ns < 30 * MS
