"""A box over the board: the base of the modals."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from torchtop.app.panes.pane import Rows
from torchtop.app.text import Row, Span, fit, row_width
from torchtop.app.thrift import ThriftyCompositor

if TYPE_CHECKING:
    from torchtop.app.main import TorchtopApp

T = TypeVar("T")


class Box(Rows):
    """Draws the sheet's rows within a frame."""

    sheet: Sheet[object]

    def compute(self, width: int, height: int) -> list[Row]:
        """Frame, title, and the sheet's own rows."""
        ascii_only = self.view.glyphs.ascii
        top, side, low = ("+-+", "|", "+-+") if ascii_only else ("╭─╮", "│", "╰─╯")
        inner = width - 4
        title: list[Span] = [(f" {self.sheet.heading} ", "title")]
        line = top[1] * max(0, width - 3 - row_width(title))
        rows: list[Row] = [((top[0] + top[1], "accent"), *title, (line + top[2], "accent"))]
        rows += [
            ((side + " ", "accent"), *fit(row, inner), (" " + side, "accent"))
            for row in self.sheet.rows(inner, height - 2)[: height - 2]
        ]
        while len(rows) < height - 1:
            rows.append(((side, "accent"), (" " * (width - 2), ""), (side, "accent")))
        rows.append(((low[0] + low[1] * (width - 2) + low[2], "accent"),))
        return rows


class Sheet(ModalScreen[T]):
    """A modal of drawn rows. Subclasses give `heading`, `rows` and `wanted`."""

    DEFAULT_CSS = """
    Sheet { align: center middle; background: transparent; }
    Sheet > Box { width: 60; height: 10; }
    """
    heading = ""
    app: TorchtopApp

    def __init__(self) -> None:
        super().__init__()
        self._compositor = ThriftyCompositor(self.app.front)
        self.box = Box(id="box")
        self.box.sheet = self  # type: ignore[assignment]
        self._answered = False

    def compose(self) -> ComposeResult:
        """The box alone."""
        yield self.box

    def rows(self, width: int, height: int) -> list[Row]:
        """The lines within the frame."""
        raise NotImplementedError

    def wanted(self) -> tuple[int, int]:
        """Width and height that the lines would like, without the frame."""
        raise NotImplementedError

    def typed(self, event: events.Key) -> bool:
        """Take a key that the sheet knows without a binding; whether it did."""
        return False

    async def on_key(self, event: events.Key) -> None:
        """Take every key here, in the order of typing.

        Left to bubble, bound keys (Backspace) would come after letters that were typed later, and
        keys that arrive behind the one that closed the sheet would act on what lies below it.
        """
        event.stop()
        if self._answered or not self.is_current or self.typed(event):
            return
        await self.app._check_bindings(event.key)

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close with an answer, once: a second one would close the screen below."""
        if self._answered or not self.is_current:
            return AwaitComplete()
        self._answered = True
        return super().dismiss(result)

    def on_mount(self) -> None:
        """Take a fitting size."""
        self._fit()

    def on_resize(self) -> None:
        """Stay within the screen."""
        self._fit()

    def _fit(self) -> None:
        width, height = self.wanted()
        self.box.styles.width = max(20, min(width + 4, self.app.size.width - 2))
        self.box.styles.height = max(4, min(height + 2, self.app.size.height - 2))

    def refresh_rows(self) -> None:
        """Draw what changed."""
        self.box.redraw()
