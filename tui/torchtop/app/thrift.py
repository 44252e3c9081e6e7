"""Fewer bytes to the terminal: only cells that differ from what it shows are sent.

Textual sends a changed row from its widget's left edge, states every colour of every segment in
full, and paints all of the screen again (twice) whenever its layout changes. Here a `Front` knows
what the terminal shows, and the compositor's updates are compared with it. On eight GPUs that is a
sixth of the bytes. It stands on internals of Textual 8: the dependency is held below 9, and tests
hold the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

_ATTRIBUTES = (
    ("bold", "1", "22"),
    ("dim", "2", "22"),
    ("italic", "3", "23"),
    ("underline", "4", "24"),
    ("blink", "5", "25"),
    ("reverse", "7", "27"),
    ("strike", "9", "29"),
)
"""Name, the SGR code that turns it on, and the one that turns it off (ECMA-48)."""

_OFF = {on: off for _, on, off in _ATTRIBUTES}


class Pen(NamedTuple):
    """How a terminal is set to write: attributes as SGR codes, and the codes of both colours."""

    attributes: frozenset[str] = frozenset()
    ink: str = "39"
    paper: str = "49"


@lru_cache(maxsize=1024)
def pen_of(style: Style | None, system: ColorSystem) -> Pen:
    """The pen that a style asks for."""
    if style is None:
        return Pen()
    attributes = frozenset(code for name, code, _ in _ATTRIBUTES if getattr(style, name))
    ink, paper = style.color, style.bgcolor
    return Pen(
        attributes,
        ";".join(ink.downgrade(system).get_ansi_codes()) if ink else "39",
        ";".join(paper.downgrade(system).get_ansi_codes(foreground=False)) if paper else "49",
    )


@lru_cache(maxsize=4096)
def change(before: Pen, after: Pen) -> str:
    """The shortest escape that turns one pen into another."""
    codes: list[str] = []
    kept = before.attributes
    for code in sorted(before.attributes - after.attributes):
        if (off := _OFF[code]) not in codes:
            codes.append(off)
        kept = frozenset(c for c in kept if _OFF[c] != off)
    codes += sorted(after.attributes - kept)
    if before.ink != after.ink:
        codes.append(after.ink)
    if before.paper != after.paper:
        codes.append(after.paper)
    return f"\x1b[{';'.join(codes)}m" if codes else ""


Cell = tuple[str, Pen]
Piece = tuple[int, int, Sequence[Cell]]
"""x, y, and texts with their pens."""

_NEAR = 8
"""Unchanged cells that are sent between two changed ones: about the bytes of a cursor movement."""


class Front:
    """What the terminal shows, as far as it is known, cell by cell.

    Cells under wide or joined characters are never known: they are sent each time.
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, Cell]] = {}

    def clear(self) -> None:
        """Nothing is known any more: another program has written, or the size has changed."""
        self._rows.clear()

    def news(self, x: int, y: int, segments: Iterable[Segment], system: ColorSystem) -> list[Piece]:
        """The parts of a piece of a row that the terminal does not show yet; now it does."""
        texts = [(s.text, pen_of(s.style, system)) for s in segments if s.text and not s.control]
        row = self._rows.setdefault(y, {})
        if any(cell_len(text) != len(text) for text, _ in texts):
            for at in range(x, x + sum(cell_len(text) for text, _ in texts)):
                row.pop(at, None)
            return [(x, y, texts)]
        cells = [(char, pen) for text, pen in texts for char in text]
        runs: list[tuple[int, int]] = []
        for at, cell in enumerate(cells):
            if row.get(x + at) != cell:
                row[x + at] = cell
                if runs and at - runs[-1][1] < _NEAR:
                    runs[-1] = (runs[-1][0], at + 1)
                else:
                    runs.append((at, at + 1))
        return [(x + first, y, cells[first:last]) for first, last in runs]


def encode(pieces: Iterable[Piece]) -> str:
    """Pieces as one sequence that begins and ends with a plain pen."""
    out: list[str] = []
    pen, cursor = Pen(), (-1, -1)
    for x, y, cells in pieces:
        if (x, y) != cursor:
            out.append(f"\x1b[{y + 1};{x + 1}H")
        # After wide characters terminals disagree about the place.
        wide = any(cell_len(text) != len(text) for text, _ in cells)
        cursor = (-1, -1) if wide else (x + sum(len(text) for text, _ in cells), y)
        for text, wanted in cells:
            if wanted != pen:
                out.append(change(pen, wanted))
                pen = wanted
            out.append(text)
    if pen != Pen():
        out.append("\x1b[0m")
    return "".join(out)


def _system(console: Console) -> ColorSystem:
    return console._color_system or ColorSystem.TRUECOLOR


class ThriftyUpdate(ChopsUpdate):
    """A partial update."""

    front: Front

    def render_segments(self, console: Console) -> str:
        """The update as raw text for the terminal."""
        return encode(self._pieces(_system(console)))

    def _pieces(self, system: ColorSystem) -> Iterable[Piece]:
        for y, first, last in self.spans:
            line: Mapping[int, Strip | None] = self.chops[y]
            for end, (x, strip) in zip(self.chop_ends[y], line.items(), strict=False):
                start, stop = max(first, x), min(last, end)
                if strip is not None and start < stop:
                    part = strip.crop(start - x, stop - x)
                    yield from self.front.news(start, y, part, system)


class ThriftyFrame(LayoutUpdate):
    """A whole screen."""

    def __init__(self, strips: list[Iterable[Strip]], region: Region, front: Front) -> None:
        super().__init__(strips, region)
        self.front = front

    def render_segments(self, console: Console) -> str:
        """The screen as raw text for the terminal."""
        system = _system(console)
        return encode(
            piece
            for y, line in enumerate(self.strips, self.region.y)
            for piece in self.front.news(self.region.x, y, (s for t in line for s in t), system)
        )


class ThriftyCompositor(Compositor):
    """Textual's compositor with thrifty updates.

    Args:
        front: what the terminal shows; shared by all screens of the app.
    """

    def __init__(self, front: Front) -> None:
        super().__init__()
        self.front = front

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        """The whole screen."""
        update = super().render_full_update(simplify)
        return ThriftyFrame(update.strips, update.region, self.front)

    def render_partial_update(self) -> ChopsUpdate | None:
        """What changed, or None."""
        update = super().render_partial_update()
        if update is None:
            return None
        thrifty = ThriftyUpdate(update.chops, update.spans, update.chop_ends)
        thrifty.front = self.front
        return thrifty
