from __future__ import annotations

import pytest

from app.made_session import HOSTILE
from torchtop.app.text import (
    asciify,
    clean,
    cut,
    cut_words,
    fit,
    plain,
    row_width,
    spread,
    width,
    wrap,
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain", "plain"),
        ("\x1b[2Jx", "·[2Jx"),
        ("a\tb\nc\rd", "a  b c d"),
        ("\u202eevil\u202c", "evil"),
        ("bell\x07 nul\x00 c1\x9b", "bell· nul· c1·"),
        ("\ud83d", "?"),
        ("日本語", "日本語"),
        ("heart\ufe0f", "heart"),
        ("line\u2028end", "line·end"),
    ],
)
def test_text_of_others_becomes_one_harmless_line(given: str, expected: str) -> None:
    assert clean(given) == expected


def test_cleaned_text_can_always_be_written_to_a_terminal() -> None:
    text = clean(HOSTILE)
    text.encode("utf-8")
    assert text.isprintable()


@pytest.mark.parametrize("cells", range(1, 30))
def test_a_cut_text_never_takes_more_cells(cells: int) -> None:
    for text in ("ascii only text", "日本語テスト mixed", "e\u0301" * 40):
        assert width(cut(text, cells)) <= cells


def test_a_cut_says_that_something_is_missing() -> None:
    assert cut("slow-loader", 6) == "slow-…"
    assert cut("slow", 6) == "slow"


@pytest.mark.parametrize("cells", range(1, 40))
def test_a_fitted_row_has_exactly_the_width(cells: int) -> None:
    row = [("日本", "a"), (" bar ", "b"), ("baz", "c"), ("ｗｉｄｅ", "d")]
    assert row_width(fit(row, cells)) == cells


def test_no_row_can_hold_what_a_terminal_obeys() -> None:
    row = fit([("\x1b[2J", "a"), ("\ud83d", "b")], 10)
    assert plain(row).isprintable() and row_width(row) == 10


def test_trailing_space_is_no_text_that_could_be_missing() -> None:
    assert plain(fit([("quit   ", "")], 4)) == "quit"


def test_spread_puts_the_parts_at_both_ends() -> None:
    assert plain(spread([("left", "")], [("right", "")], 12)) == "left   right"


def test_spread_cuts_the_left_part_first() -> None:
    assert plain(spread([("a long text", "")], [("right", "")], 12)) == "a long…right"


def test_wrapping_breaks_between_words_and_cuts_the_last_line() -> None:
    assert wrap("one two three four", 9, 2) == ["one two", "three …"]
    assert wrap("", 9, 2) == []


WAITS = "the GPU waits for a batch 74.8 ms of a 78.8 ms step; the ranks wait 27.3 ms to 74.8 ms"


@pytest.mark.parametrize("cells", range(1, 100))
def test_a_cut_sentence_never_takes_more_cells(cells: int) -> None:
    for text in (WAITS, "日本語テスト mixed " * 9, "one-word" * 30, "e\u0301" * 400):
        assert width(cut_words(text, cells)) <= cells


@pytest.mark.parametrize("cells", range(30, len(WAITS)))
def test_a_cut_sentence_ends_in_no_number_that_is_not_its_own(cells: int) -> None:
    kept, _, rest = cut_words(WAITS, cells).rpartition(" ")

    assert rest == "…"
    assert WAITS.startswith(kept)
    assert not WAITS[len(kept) :][:1].isalnum()
    assert not kept.split()[-1][-1].isdigit()


def test_a_sentence_is_cut_after_a_whole_clause_where_that_is_half_of_it() -> None:
    assert cut_words(WAITS, 80) == "the GPU waits for a batch 74.8 ms of a 78.8 ms step …"
    assert cut_words("a; " + WAITS, 30) == "a; the GPU waits for a batch …"


def test_of_several_sentences_whole_ones_are_kept() -> None:
    told = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total of 9 GiB and"
    assert cut_words(told, 60) == "CUDA out of memory. Tried to allocate 20.00 GiB. …"


def test_a_sentence_that_fits_is_not_cut() -> None:
    assert cut_words(WAITS, len(WAITS)) == WAITS
    assert cut_words("", 5) == ""


def test_ascii_text_keeps_its_width() -> None:
    text = "▲ 38 % … 日本 → µ"
    assert asciify(text).isascii()
    assert len(asciify(text)) == width(text)
