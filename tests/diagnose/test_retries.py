"""How often an allocator has run out of memory, from counts every five seconds."""

from __future__ import annotations

from torchtop.diagnose.ranks import RankState

SECOND = 1_000_000_000


def counted(*counts: tuple[float, int | None]) -> RankState:
    state = RankState(0, 0, "ranks/0-0-1.jsonl", {})
    for at_s, count in counts:
        state.memory.append({"mono_ns": int(at_s * SECOND), "alloc_retries": count})
    return state


def test_retries_since_a_time_are_those_between_counts() -> None:
    state = counted((10, 3), (15, 3), (20, 7), (25, 8))

    assert state.retries_since(14 * SECOND, 100) == (5, 10.0)


def test_what_may_have_been_before_does_not_count() -> None:
    # given retries while the first batches found their place, and steps for one second since
    state = counted((1, 0), (6, 9), (11, 9))

    assert state.retries_since(5 * SECOND, 20) == (0, 5.0)
    assert counted((1, 0), (6, 9)).retries_since(5 * SECOND, 20) == (0, 0.0)


def test_more_than_one_a_step_cannot_all_have_been_before() -> None:
    # given counts of an H200 whose allocator flushed its cache 3 to 4 times a step
    state = counted((233.06, 44), (238.06, 552))

    assert state.retries_since(int(234.5 * SECOND), 158) == (508, 5.0)


def test_unknown_counts_are_left_out() -> None:
    assert counted((10, None), (15, None)).retries_since(0, 1) == (0, 0.0)
    assert counted().retries_since(0, 1) == (0, 0.0)
