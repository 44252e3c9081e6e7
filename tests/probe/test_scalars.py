"""Scalars that a script tells."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

from torchtop.probe.scalars import Scalars  # noqa: E402

Told = list[tuple[int, str, float]]


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def scalars(told: Told) -> Scalars:
    return Scalars(lambda *item: told.append(item), torch)


@pytest.mark.parametrize(
    "value",
    [
        0.5,
        torch.tensor(0.5),
        torch.tensor([[0.5]], dtype=torch.float64),
        torch.tensor(0.5, requires_grad=True) * 1,
        torch.tensor(0.5, dtype=torch.bfloat16),
        numpy.float32(0.5),
    ],
)
@pytest.mark.filterwarnings("error")
def test_numbers_and_tensors_of_one_element_are_taken(
    scalars: Scalars, told: Told, value: Any
) -> None:
    scalars.take(3, {"loss": value})

    assert told == [(3, "loss", 0.5)]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "0.5",
        [0.5],
        torch.zeros(2),
        torch.zeros(0),
        torch.tensor(1j),
        torch.zeros(1, device="meta"),
        10**400,
        object(),
    ],
)
def test_what_is_no_scalar_is_ignored(scalars: Scalars, told: Told, value: Any) -> None:
    scalars.take(3, {"x": value, "loss": 1})

    assert told == [(3, "loss", 1.0)]


def test_a_name_is_taken_a_few_times_a_second_at_most(scalars: Scalars, told: Told) -> None:
    for step in range(1000):
        scalars.take(step, {"loss": step, "accuracy": step})

    steps = [step for step, name, _ in told if name == "loss"]
    assert steps[0] == 0
    assert len(steps) < 100


def test_polling_with_nothing_on_its_way_is_allowed(scalars: Scalars, told: Told) -> None:
    scalars.poll()

    assert told == []
