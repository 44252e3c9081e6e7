"""Fewer bytes to the terminal: a compositor whose updates send only the cells that changed.

Textual's own partial update sends a row from its widget's left edge and states every colour of
every segment in full. On a screen of GPUs whose last columns tick that is three times the bytes.
It stands on internals of Textual 8: the dependency is held below 9, and tests hold the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
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


def encode(pieces: Iterable[tuple[int, int, Iterable[Segment]]], system: ColorSystem) -> str:
    """Pieces of rows, each at (x, y), as one sequence that begins and ends with a plain pen."""
    out: list[str] = []
    pen = Pen()
    for x, y, segments in pieces:
        out.append(f"\x1b[{y + 1};{x + 1}H")
        for text, style, control in segments:
            if control or not text:
                continue
            wanted = pen_of(style, system)
            out.append(change(pen, wanted))
            out.append(text)
            pen = wanted
    if pen != Pen():
        out.append("\x1b[0m")
    return "".join(out)


class ThriftyUpdate(ChopsUpdate):
    """A partial update of exactly its spans."""

    def render_segments(self, console: Console) -> str:
        """The update as raw text for the terminal."""
        system = console._color_system or ColorSystem.TRUECOLOR
        return encode(self._pieces(), system)

    def _pieces(self) -> Iterable[tuple[int, int, Iterable[Segment]]]:
        for y, first, last in self.spans:
            line: Mapping[int, Strip | None] = self.chops[y]
            ends: Sequence[int] = self.chop_ends[y]
            for end, (x, strip) in zip(ends, line.items(), strict=False):
                start, stop = max(first, x), min(last, end)
                if strip is not None and start < stop:
                    yield start, y, strip.crop(start - x, stop - x)


class ThriftyFrame(LayoutUpdate):
    """A whole screen."""

    def render_segments(self, console: Console) -> str:
        """The screen as raw text for the terminal."""
        system = console._color_system or ColorSystem.TRUECOLOR
        x, top = self.region.x, self.region.y
        rows = (
            (x, y, [segment for strip in line for segment in strip])
            for y, line in enumerate(self.strips, top)
        )
        return encode(rows, system)


class ThriftyCompositor(Compositor):
    """Textual's compositor with thrifty updates."""

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        """The whole screen."""
        update = super().render_full_update(simplify)
        return ThriftyFrame(update.strips, update.region)

    def render_partial_update(self) -> ChopsUpdate | None:
        """The cells that changed, or None."""
        update = super().render_partial_update()
        if update is None:
            return None
        return ThriftyUpdate(update.chops, update.spans, update.chop_ends)
