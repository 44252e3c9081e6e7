"""The characters that charts are drawn with: Unicode blocks, or ASCII alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Glyphs:
    """One set of drawing characters.

    Attributes:
        columns: nine heights of a column, from empty to full.
        full: a full cell of a bar.
        parts: eight widths of a bar's last cell, from empty to seven eighths.
        track: the empty part of a bar.
        rule: a horizontal line.
        ascii: nothing but ASCII may be written.
    """

    columns: str
    full: str
    parts: str
    track: str
    rule: str
    ascii: bool = False


UNICODE = Glyphs(columns=" ▁▂▃▄▅▆▇█", full="█", parts=" ▏▎▍▌▋▊▉", track="─", rule="─")
ASCII = Glyphs(columns=" ._-=+*##", full="#", parts="        ", track=".", rule="-", ascii=True)
