"""Sentences that are made shorter."""

from __future__ import annotations

import pytest

from torchtop.session.brief import brief

TOLD = "It failed. The loader waited for its workers, and they for the disk and the network"


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (len(TOLD), TOLD),
        (60, "It failed. The loader waited for its workers …"),  # after a clause
        (18, "It failed. …"),  # after a sentence
        (len(TOLD) - 1, "It failed. The loader waited for its workers …"),
    ],
)
def test_it_is_cut_where_a_part_of_it_ends(limit: int, kept: str) -> None:
    assert brief(TOLD, limit) == kept


def test_between_words_it_ends_in_none_that_wants_another() -> None:
    assert brief("one two three four five of the seven", 32) == "one two three four five …"


@pytest.mark.parametrize("limit", range(3, 120))
@pytest.mark.parametrize("text", [TOLD, "x" * 200, "and " * 60, "a, b; c. " * 20])
def test_it_is_never_longer(text: str, limit: int) -> None:
    assert len(brief(text, limit)) <= limit
