"""What the thrifty encoder writes is read back by a small terminal and compared, cell by cell."""

from __future__ import annotations

import random
import re

import pytest
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

from torchtop.app.panes.pane import changed
from torchtop.app.thrift import Front, Pen, change, encode, pen_of

STYLES = [
    None,
    Style.parse("red"),
    Style.parse("bold red"),
    Style.parse("bold #a0b0c0 on #101010"),
    Style.parse("dim #a0b0c0 on #101010"),
    Style.parse("bold dim italic underline reverse on blue"),
    Style.parse("strike blink"),
    Style.null(),
]
_TOKEN = re.compile(r"\x1b\[([\d;]*)([Hm])|([^\x1b]+)")


class Screen:
    """A terminal that knows cursor places and colours."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, Pen]] = {}
        self.pen = Pen()
        self.at = (0, 0)

    def feed(self, text: str) -> None:
        assert _TOKEN.sub("", text) == ""
        for codes, kind, plain in _TOKEN.findall(text):
            if kind == "H":
                y, x = map(int, codes.split(";"))
                self.at = (x - 1, y - 1)
            elif kind == "m":
                self.pen = apply(self.pen, codes)
            for char in plain:
                self.cells[self.at] = (char, self.pen)
                self.at = (self.at[0] + 1, self.at[1])


def apply(pen: Pen, codes: str) -> Pen:
    """Select Graphic Rendition, as ECMA-48 and xterm have it."""
    attributes, ink, paper = set(pen.attributes), pen.ink, pen.paper
    rest = codes.split(";")
    while rest:
        code = rest.pop(0)
        if code in ("38", "48"):
            size = 4 if rest[0] == "2" else 2
            value, rest = ";".join([code, *rest[:size]]), rest[size:]
            ink, paper = (value, paper) if code == "38" else (ink, value)
        elif code == "0":
            attributes, ink, paper = set(), "39", "49"
        elif code in ("1", "2", "3", "4", "5", "7", "9"):
            attributes.add(code)
        elif code == "22":
            attributes -= {"1", "2"}
        elif code in ("23", "24", "25", "27", "29"):
            attributes.discard(code[1])
        elif code[0] in "39":
            ink = code
        else:
            paper = code
    return Pen(frozenset(attributes), ink, paper)


@pytest.mark.parametrize(
    "system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD]
)
def test_a_terminal_shows_what_was_meant(system: ColorSystem) -> None:
    # given frames in which every time a few pieces of rows are other texts in other styles
    chance = random.Random(3)
    screen, front = Screen(), Front()
    meant: dict[tuple[int, int], tuple[str, Pen]] = {}
    for _ in range(60):
        pieces = []
        for y in range(4):
            x = chance.randrange(20)
            segments = [
                Segment(chance.choice("abc") * chance.randrange(4), chance.choice(STYLES))
                for _ in range(9)
            ]
            pieces += front.news(x, y, segments, system)
            cells = [(c, pen_of(s.style, system)) for s in segments for c in s.text]
            meant.update({(x + i, y): cell for i, cell in enumerate(cells)})
        # when a terminal reads only what is news
        screen.feed(encode(pieces))
        # then every cell has its character and its style, and the pen is plain again
        assert screen.cells == meant
        assert screen.pen == Pen()


def test_what_the_terminal_shows_is_not_sent_again() -> None:
    front, row = Front(), [Segment("GPU 0   31%", STYLES[1])]
    assert front.news(0, 0, row, ColorSystem.TRUECOLOR)
    assert front.news(0, 0, row, ColorSystem.TRUECOLOR) == []
    changed_row = [Segment("GPU 0   32%", STYLES[1])]
    [(x, y, cells)] = front.news(0, 0, changed_row, ColorSystem.TRUECOLOR)
    assert (x, y, [text for text, _ in cells]) == (9, 0, ["2"])


def test_after_a_clear_everything_is_sent() -> None:
    front, row = Front(), [Segment("abc", None)]
    front.news(0, 0, row, ColorSystem.TRUECOLOR)
    front.clear()
    assert front.news(0, 0, row, ColorSystem.TRUECOLOR)


def test_what_was_under_a_wide_character_is_sent_again() -> None:
    front = Front()
    plain, wide = [Segment("abcd", None)], [Segment("日本", None)]
    front.news(0, 0, plain, ColorSystem.TRUECOLOR)
    assert front.news(0, 0, wide, ColorSystem.TRUECOLOR)
    assert front.news(0, 0, wide, ColorSystem.TRUECOLOR)
    assert front.news(0, 0, plain, ColorSystem.TRUECOLOR)
    assert front.news(0, 0, plain, ColorSystem.TRUECOLOR) == []


def test_no_change_of_pen_costs_nothing() -> None:
    pen = pen_of(STYLES[3], ColorSystem.TRUECOLOR)
    assert change(pen, pen) == ""


def test_only_what_differs_is_said() -> None:
    bold, dim = (pen_of(STYLES[i], ColorSystem.TRUECOLOR) for i in (3, 4))
    assert change(bold, dim) == "\x1b[22;2m"


def test_runs_of_changed_cells_are_found() -> None:
    old = (("GPU 0   31%", ""), (" " * 30, ""), ("51 C", ""))
    new = (("GPU 0   32%", ""), (" " * 30, ""), ("52 C", "warn"))
    assert changed(old, new) == [(9, 10), (41, 45)]


def test_runs_close_together_are_one() -> None:
    assert changed((("a b c", ""),), (("x b y", ""),)) == [(0, 5)]


def test_the_same_row_has_no_changes() -> None:
    assert changed((("abc", "x"),), (("ab", "x"), ("c", "x"))) == []


def test_rows_with_wide_characters_are_given_as_a_whole() -> None:
    assert changed((("日本 a", ""),), (("日本 b", ""),)) == [(0, 6)]
