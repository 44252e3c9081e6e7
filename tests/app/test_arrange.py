from __future__ import annotations

import itertools

import pytest

from torchtop.app.panes.arrange import Need, Place, arrange

SIZES = [
    (40, 10),
    (60, 16),
    (80, 22),
    (80, 48),
    (100, 30),
    (120, 38),
    (150, 30),
    (200, 48),
    (240, 68),
]
NEEDS = [
    Need(gpus=gpus, ranks=ranks, failed=failed, stepped=stepped)
    for gpus, ranks in ((0, 2), (1, 1), (2, 2), (8, 8), (16, 16))
    for failed, stepped in ((False, True), (True, True), (False, False))
] + [Need(gpus=gpus, idle=True, workloads=9) for gpus in (0, 2, 8, 16)]
FIVE = {"verdict", "gpus", "step", "throughput", "data"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("need", NEEDS)
def test_panes_lie_within_the_board_and_never_overlap(size: tuple[int, int], need: Need) -> None:
    places = arrange(*size, need)
    for place in places.values():
        assert place.x >= 0 and place.y >= 0 and place.width > 0 and place.height > 0
        assert place.x + place.width <= size[0] and place.y + place.height <= size[1]
    for one, other in itertools.combinations(places.values(), 2):
        assert not overlap(one, other)


def overlap(a: Place, b: Place) -> bool:
    return (
        a.x < b.x + b.width
        and b.x < a.x + a.width
        and a.y < b.y + b.height
        and b.y < a.y + a.height
    )


@pytest.mark.parametrize("gpus", [0, 1, 2, 4, 8, 16])
def test_five_panes_share_the_small_screen(gpus: int) -> None:
    places = arrange(80, 22, Need(gpus=gpus, ranks=max(1, gpus)))
    assert set(places) == FIVE
    assert min(place.height for place in places.values()) >= 3


@pytest.mark.parametrize("gpus", [0, 1, 8, 16])
def test_all_panes_are_on_the_large_screen(gpus: int) -> None:
    places = arrange(200, 48, Need(gpus=gpus, ranks=max(1, gpus)))
    assert set(places) == FIVE | {"logs", "host", "events"}


@pytest.mark.parametrize("gpus", range(1, 17))
def test_every_gpu_has_its_row_at_80x24(gpus: int) -> None:
    height = arrange(80, 22, Need(gpus=gpus, ranks=gpus))["gpus"].height
    assert height - 1 >= gpus or (height - 1) * 2 >= gpus


def test_before_the_first_step_the_logs_take_the_steps_place() -> None:
    places = arrange(80, 22, Need(gpus=2, ranks=2, stepped=False))
    assert set(places) == {"verdict", "gpus", "logs"}


def test_a_failure_gets_more_room_than_a_verdict() -> None:
    usual = arrange(80, 22, Need(gpus=2, ranks=2))["verdict"].height
    assert arrange(80, 22, Need(gpus=2, ranks=2, failed=True))["verdict"].height > usual


def test_a_zoomed_pane_has_the_board_to_itself() -> None:
    assert arrange(80, 22, Need(), zoom="logs") == {"logs": Place(0, 0, 80, 22)}


def test_idle_shows_gpus_catalog_and_host() -> None:
    assert set(arrange(80, 22, Need(gpus=2, idle=True, workloads=9))) == {"gpus", "catalog", "host"}
