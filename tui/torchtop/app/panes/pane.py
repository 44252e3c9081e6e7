"""A pane on the screen: draws rows, and repaints only the cells of them that changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from torchtop.app.panes.parts import heading, titled
from torchtop.app.text import Row, Span, asciify, clean, fit, width
from torchtop.app.view import View

if TYPE_CHECKING:
    from torchtop.app.main import TorchtopApp

Body = Callable[[View, int, int], list[Row]]
Aside = Callable[[View, int], list[Span]]
Titles = Callable[[View, int, int], list[Span]]


_NEAR = 10
"""Cells: about the bytes of a cursor movement."""


class Rows(Widget):
    """A widget whose lines are rows of styled text.

    Subclasses say what the rows are in `compute`.
    """

    DEFAULT_CSS = "Rows { width: 1fr; height: 1fr; }"
    app: TorchtopApp

    def __init__(self, *, id: str, can_focus: bool = False) -> None:
        super().__init__(id=id)
        self.can_focus = can_focus
        self.view = View()
        self._rows: list[Row] = []
        self._rows_size = Size(0, 0)

    def on_mount(self) -> None:
        """The first frame has the terminal's characters already."""
        self.view = self.app.view

    def compute(self, width: int, height: int) -> list[Row]:
        """The rows to draw; too few or too short ones are filled up."""
        raise NotImplementedError

    def show(self, view: View) -> None:
        """Draw another view; what looks the same is not repainted."""
        self.view = view
        if self.is_mounted and self.display:
            self.redraw()

    def redraw(self) -> None:
        """Compute the rows and repaint the cells that differ."""
        if not self.size:
            return
        before, size = self._rows, self._rows_size
        self._compute()
        if size != self._rows_size:
            self.refresh()
            return
        regions = [
            Region(first, y, last - first, 1)
            for y, (old, new) in enumerate(zip(before, self._rows, strict=True))
            if old != new
            for first, last in changed(old, new)
        ]
        if regions:
            self.refresh(*regions)

    def repaint(self) -> None:
        """Paint all of it again: the theme changed."""
        self._rows_size = Size(0, 0)
        self.redraw()

    def _compute(self) -> None:
        self._rows, self._rows_size = self._sized(*self.size), self.size

    def _sized(self, cells: int, height: int) -> list[Row]:
        try:
            rows = [fit(row, cells) for row in self.compute(cells, height)[:height]]
        except Exception as error:  # one odd record must not end a viewer that is open all day
            told = clean(f"cannot draw this: {type(error).__name__}: {error}")
            rows = [fit([(told, "warn")], cells)]
        rows += [fit([], cells)] * (height - len(rows))
        if self.view.glyphs.ascii:
            rows = [tuple((asciify(text), style) for text, style in row) for row in rows]
        return rows

    def on_resize(self) -> None:
        """A new size needs new rows (which are painted by now, where the layout was first)."""
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """One row as a strip."""
        if self._rows_size != self.size:
            self._compute()
        palette = self.app.palette
        if y >= len(self._rows):
            return Strip.blank(self.size.width, palette[""])
        return Strip(
            [Segment(text, palette[style]) for text, style in self._rows[y]], self.size.width
        )


class Pane(Rows):
    """A titled pane of the board.

    Args:
        name: the pane's id.
        title: what stands on its rule.
        body: its rows.
        aside: what stands at the right of its rule.
        titles: column titles that take the rule's place when the body has no row for them.
    """

    def __init__(
        self, name: str, title: str, body: Body, aside: Aside, titles: Titles | None = None
    ) -> None:
        super().__init__(id=name, can_focus=True)
        self.title = title
        self._body, self._aside, self._titles = body, aside, titles

    def compute(self, width: int, height: int) -> list[Row]:
        """The heading, then the body within a margin of one cell."""
        inner = max(1, width - 2)
        titles = self._titles(self.view, inner, height - 1) if self._titles else []
        if titles:
            head = titled(self.title, titles, width, self.view.glyphs, self.has_focus)
        else:
            aside = self._aside(self.view, inner)
            head = heading(self.title, aside, width, self.view.glyphs, self.has_focus)
        rows = self._body(self.view, inner, height - 1) if height > 1 else []
        return [head, *(((" ", ""), *row, (" ", "")) for row in rows)]

    def on_focus(self) -> None:
        """The heading shows the focus."""
        self.redraw()

    def on_blur(self) -> None:
        """The heading shows the focus."""
        self.redraw()


def changed(old: Sequence[Span], new: Sequence[Span]) -> list[tuple[int, int]]:
    """Runs of cells (first, one after the last) in which two rows of one width differ.

    Runs that lie close together are one: a new place costs as many bytes as a few cells. Rows with
    wide characters are given as a whole.
    """
    a, b = _cells(old), _cells(new)
    if a is None or b is None or len(a) != len(b):
        return [(0, sum(width(text) for text, _ in new))]
    runs: list[tuple[int, int]] = []
    for x, (before, after) in enumerate(zip(a, b, strict=True)):
        if before != after:
            if runs and x - runs[-1][1] < _NEAR:
                runs[-1] = (runs[-1][0], x + 1)
            else:
                runs.append((x, x + 1))
    return runs


def _cells(row: Sequence[Span]) -> list[tuple[str, str]] | None:
    """A row by cell, or None where characters and cells are not one to one."""
    cells: list[tuple[str, str]] = []
    for text, style in row:
        if width(text) != len(text):
            return None
        cells.extend((char, style) for char in text)
    return cells
