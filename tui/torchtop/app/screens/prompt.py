"""One line of typing at the foot of the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from torchtop.app.keys import sheet_key
from torchtop.app.screens.sheet import Sheet
from torchtop.app.text import Row, Span, fit


class Prompt(Sheet["str | None"]):
    """Asks for a text; Enter takes it, Esc gives None.

    Args:
        heading: what is asked for.
        text: what stands there at first.
        typed: called with the text whenever it changes.
    """

    DEFAULT_CSS = "Prompt { align: center bottom; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        sheet_key("enter", "take", "take"),
        sheet_key("escape,ctrl+c", "close", "cancel"),
        sheet_key("backspace", "erase", "erase"),
        sheet_key("ctrl+u", "clear", "clear"),
    ]

    def __init__(self, heading: str, text: str, typed: Callable[[str], None]) -> None:
        super().__init__()
        self.heading, self.text, self._tell = heading, text, typed

    def wanted(self) -> tuple[int, int]:
        """The line, and what its keys do."""
        return 60, 2

    def rows(self, width: int, height: int) -> list[Row]:
        """The text and a cursor."""
        keys: list[Span] = [
            ("Enter", "key"),
            (" keeps  ", "dim"),
            ("Esc", "key"),
            (" cancels", "dim"),
        ]
        return [
            fit([(self.text[-(width - 2) :], "value"), ("▏", "accent")], width),
            fit(keys, width),
        ]

    def _changed(self, text: str) -> None:
        self.text = text
        self._tell(text)
        self.refresh_rows()

    def typed(self, event: events.Key) -> bool:
        """Typing."""
        if not (event.is_printable and event.character):
            return False
        self._changed(self.text + event.character)
        return True

    def action_erase(self) -> None:
        """Take the last character back."""
        self._changed(self.text[:-1])

    def action_clear(self) -> None:
        """Empty the line."""
        self._changed("")

    def action_take(self) -> None:
        """Done."""
        self.dismiss(self.text)

    def action_close(self) -> None:
        """As before."""
        self.dismiss(None)
