"""A pane on the screen: draws rows, and repaints only the cells of them that changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from torchtop.app.panes.parts import heading
from torchtop.app.text import Row, Span, asciify, fit
from torchtop.app.view import View

if TYPE_CHECKING:
    from torchtop.app.main import TorchtopApp

Body = Callable[[View, int, int], list[Row]]
Aside = Callable[[View, int], list[Span]]


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
        width, height = self.size
        if width <= 0 or height <= 0:
            return
        rows = self._sized(width, height)
        before, self._rows = self._rows, rows
        if len(before) != height:
            self.refresh()
            return
        regions = [
            Region(first, y, last - first, 1)
            for y, (old, new) in enumerate(zip(before, rows, strict=True))
            if old != new
            for first, last in [changed(old, new)]
        ]
        if regions:
            self.refresh(*regions)

    def repaint(self) -> None:
        """Paint all of it again (the theme or the size changed)."""
        self._rows = []
        self.redraw()

    def _sized(self, width: int, height: int) -> list[Row]:
        rows = [fit(row, width) for row in self.compute(width, height)[:height]]
        rows += [fit([], width)] * (height - len(rows))
        if self.view.glyphs.ascii:
            rows = [tuple((asciify(text), style) for text, style in row) for row in rows]
        return rows

    def on_resize(self) -> None:
        """A new size needs new rows."""
        self.repaint()

    def render_line(self, y: int) -> Strip:
        """One row as a strip."""
        if len(self._rows) != self.size.height:
            self._rows = self._sized(*self.size)
        if y >= len(self._rows):
            return Strip.blank(self.size.width, self.app.palette[""])
        palette = self.app.palette
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
    """

    CLEAR: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, title: str, body: Body, aside: Aside) -> None:
        super().__init__(id=name, can_focus=True)
        self.title = title
        self._body, self._aside = body, aside

    def compute(self, width: int, height: int) -> list[Row]:
        """The heading, then the body within a margin of one cell."""
        inner = max(1, width - 2)
        head = heading(
            self.title, self._aside(self.view, inner), width, self.view.glyphs, self.has_focus
        )
        rows = self._body(self.view, inner, height - 1) if height > 1 else []
        return [head, *(((" ", ""), *row, (" ", "")) for row in rows)]

    def on_focus(self) -> None:
        """The heading shows the focus."""
        self.redraw()

    def on_blur(self) -> None:
        """The heading shows the focus."""
        self.redraw()


def changed(old: Sequence[Span], new: Sequence[Span]) -> tuple[int, int]:
    """The first cell that differs and the one after the last, of two rows of one width.

    Rows with wide characters are compared by character and given as a whole where in doubt.
    """
    a, b = _cells(old), _cells(new)
    if a is None or b is None or len(a) != len(b):
        return 0, max(len(a or ()), len(b or ()), sum(len(t) * 2 for t, _ in new))
    first = next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))
    last = next((i for i in range(len(a), first, -1) if a[i - 1] != b[i - 1]), first)
    return first, max(last, first + 1)


def _cells(row: Sequence[Span]) -> list[tuple[str, str]] | None:
    """A row by cell, or None where characters and cells are not one to one."""
    cells: list[tuple[str, str]] = []
    for text, style in row:
        if not text.isascii() and any(ord(c) > 0x2FFF or 0x300 <= ord(c) < 0x370 for c in text):
            return None
        cells.extend((char, style) for char in text)
    return cells
