"""The characters that charts are drawn with: Unicode blocks, or ASCII alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Glyphs:
    """One set of drawing characters.

    Attributes:
        columns: nine heights of a column, from empty to full.
        full: a full cell of a meter.
        half: its last cell when half full.
        track: the empty part of a meter.
        rule: a horizontal line.
        ascii: nothing but ASCII may be written.
    """

    columns: str
    full: str
    half: str
    track: str
    rule: str
    ascii: bool = False


UNICODE = Glyphs(columns=" ▁▂▃▄▅▆▇█", full="━", half="╸", track="─", rule="─")
ASCII = Glyphs(columns=" ._-=+*##", full="=", half="-", track=".", rule="-", ascii=True)
