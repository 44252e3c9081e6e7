"""How fast a host is, from the steps in which it ran ahead of its device."""

from __future__ import annotations

from diagnose.made import row
from torchtop.diagnose.frontier import account
from torchtop.diagnose.pace import Paces


def learnt(*hosts_and_lags: tuple[int, int], first: int = 20, every: int = 1) -> float:
    """What is learnt of rank 0 from its host's time and lag in steps of 40 ms."""
    paces = Paces()
    for index, (host, lag) in enumerate(hosts_and_lags):
        made = row(first + every * index, backward=40_000, host_us=host, lag_backward_us=lag)
        paces.learn(account([made]))
    return paces.of(0)


AHEAD = [(22_000, 20_000), (24_000, 38_000), (23_000, 54_000), (22_500, 71_000)]


def test_a_host_whose_lead_grows_shows_its_own_pace() -> None:
    assert learnt(*AHEAD) == 22_500


def test_one_that_a_full_queue_holds_back_shows_nothing() -> None:
    assert learnt(*[(40_000, 200_000 + 8_000 * (step % 2)) for step in range(50)]) == 0


def test_two_such_steps_may_be_of_the_start() -> None:
    assert learnt(*AHEAD[:3]) == 0


def test_steps_that_do_not_follow_one_another_do_not_compare() -> None:
    assert learnt(*AHEAD, every=2) == 0


def test_unknown_times_are_passed_over() -> None:
    paces = Paces()
    for step in range(20, 30):
        paces.learn(account([row(step, backward=40_000, lag_backward_us=None)]))
        paces.learn(account([row(step, backward=0, host_us=0, lag_backward_us=step)]))

    assert paces.of(0) == 0
    assert paces.of(7) == 0
