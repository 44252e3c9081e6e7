"""HTML that cannot be broken into: all text is escaped, unless it is markup that was made here."""

from __future__ import annotations

import html
from collections.abc import Iterable


class Markup(str):
    """Text that is HTML already; only the functions of this package make it."""

    __slots__ = ()


_UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"

Content = str | int | float | None


def plain(value: object, limit: int = 200) -> str:
    """Foreign text as one printable line of at most `limit` characters."""
    flat = "".join(c if c.isprintable() else _UNPRINTABLE for c in str(value))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def escape(value: Content) -> Markup:
    """Anything as HTML text: markup stays, the rest is shown letter for letter."""
    if isinstance(value, Markup):
        return value
    text = "" if value is None else str(value)
    shown = "".join(c if c.isprintable() or c == "\n" else _UNPRINTABLE for c in text)
    return Markup(html.escape(shown, quote=True))


def tag(name: str, /, *content: Content, **attributes: Content) -> Markup:
    """An element.

    Args:
        name: its name.
        *content: what is in it; text is escaped.
        **attributes: ``class_`` is ``class``, ``aria_label`` is ``aria-label``, None is left out.
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{joined(content)}</{name}>")


_EMPTY = ("br", "meta", "hr")


def joined(parts: Iterable[Content], between: str = "") -> Markup:
    """Several pieces one after the other."""
    return Markup(escape(between).join(escape(part) for part in parts))


def table(
    head: Iterable[Content], rows: Iterable[Iterable[Content]], text_columns: int = 1
) -> Markup:
    """A table that scrolls sideways where it is too wide.

    Args:
        head: the titles.
        rows: the cells.
        text_columns: so many columns at the left are words; the others are numbers.
    """

    def cell(name: str, place: int, value: Content) -> Markup:
        return tag(name, value, class_=None if place < text_columns else "number")

    titles = joined(cell("th", place, title) for place, title in enumerate(head))
    body = joined(
        tag("tr", *(cell("td", place, value) for place, value in enumerate(row))) for row in rows
    )
    inner = tag("table", tag("thead", tag("tr", titles)), tag("tbody", body))
    return tag("div", inner, class_="scroll")
