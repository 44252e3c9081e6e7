"""Samples, tokens and bytes of the batches that loaders give."""

from __future__ import annotations

from collections import UserDict, namedtuple
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchtop.probe import batch  # noqa: E402

IMAGES = torch.zeros(8, 3, 4, 4)
LABELS = torch.zeros(8, dtype=torch.int64)
IDS = torch.zeros(8, 128, dtype=torch.int64)
MASK = torch.ones(8, 128, dtype=torch.int64)


class Encoding(UserDict[str, Any]):
    """As the BatchEncoding of transformers: a mapping that is no dict."""


Pair = namedtuple("Pair", "image label")


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        (IMAGES, (8, None)),
        ((IMAGES, LABELS), (8, None)),
        ([IMAGES, LABELS], (8, None)),
        (Pair(IMAGES, LABELS), (8, None)),
        ({"image": IMAGES, "label": LABELS}, (8, None)),
        ({"label": LABELS, "input_ids": IDS, "attention_mask": MASK}, (8, 1024)),
        (Encoding(input_ids=IDS, attention_mask=MASK), (8, 1024)),
        (({"tokens": IDS.int()}, LABELS), (8, 1024)),
        ((IDS, LABELS), (8, 1024)),
        (IDS, (8, 1024)),
        ({"a": {"b": [{"input_ids": IDS}]}}, (8, 1024)),
        ((torch.zeros(8, 13), torch.zeros(8, 26, dtype=torch.int64)), (8, None)),  # features
        ((torch.zeros(8, 784, dtype=torch.uint8), LABELS), (8, None)),  # pixels
        ((torch.zeros(8, 10, dtype=torch.bool), LABELS), (8, None)),
        (({"mask": MASK}, LABELS), (8, 1024)),  # a first tensor of whole numbers
        ((torch.tensor(3.0), IMAGES), (8, None)),  # a scalar has no samples
        (torch.tensor(3.0), (None, None)),
        (("a", 7, None), (None, None)),
        ({}, (None, None)),
        (None, (None, None)),
        ([], (None, None)),
    ],
)
def test_samples_and_tokens(given: Any, counts: tuple[int | None, int | None]) -> None:
    assert batch.count(given, torch) == counts
    assert batch.count(given, torch, batch_size=8) == counts or counts == (None, None)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_images_of_different_sizes_are_counted_by_their_sequence(size: int) -> None:
    images = [torch.zeros(3, 10 + n, 20) for n in range(size)]
    targets = [{"boxes": torch.zeros(n, 4)} for n in range(size)]

    assert batch.count((images, targets), torch, size) == (size, None)
    assert batch.count(list(zip(images, targets, strict=True)), torch, size) == (size, None)


def test_two_views_are_not_two_samples() -> None:
    assert batch.count(([IMAGES, IMAGES], LABELS), torch, 8) == (8, None)
    assert batch.count((torch.zeros(1, 3), torch.zeros(1)), torch, 2) == (1, None)  # a last batch


def test_facts_of_a_first_batch() -> None:
    assert batch.describe({"input_ids": IDS, "x": IMAGES}, torch) == {
        "bytes": 8 * 128 * 8 + 8 * 3 * 4 * 4 * 4,
        "device_bytes": 0,
        "pinned": False,
        "samples": 8,
        "tokens": 1024,
    }


def test_all_of_a_long_batch_is_weighed() -> None:
    assert batch.describe([torch.zeros(10) for _ in range(100)], torch)["bytes"] == 4000


def test_what_is_on_a_device_already_is_no_load_of_the_host() -> None:
    there = torch.zeros(4, 10, device="meta")

    told = batch.describe([there, torch.zeros(4)], torch)

    assert (told["bytes"], told["device_bytes"], told["samples"]) == (16, 160, 4)
