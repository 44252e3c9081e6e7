"""What the apps have in common: themes and glyphs of the terminal, and how they end."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from textual.app import App

from torchtop.app.charts.glyphs import ASCII, UNICODE, Glyphs
from torchtop.app.gone import silence_if_gone
from torchtop.app.terminal import ascii_only, detach_on_signals
from torchtop.app.theme import DARK, THEMES, Palette, ansi_palette, theme_palette
from torchtop.app.thrift import Front
from torchtop.app.view import View


class TerminalApp(App[int]):
    """An app in the colours that its terminal has.

    Attributes:
        palette: the colours of the theme.
        front: what the terminal shows.
        view: what is drawn.
    """

    TITLE = "torchtop"
    view: View

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for theme in THEMES:
            self.register_theme(theme)
        plain = self.console.color_system in (None, "standard")
        self.theme = "ansi-dark" if plain else DARK.name
        self.palette = self._make_palette()
        self.front = Front()

    def _make_palette(self) -> Palette:
        theme = self.current_theme
        return ansi_palette() if theme.ansi else theme_palette(theme)

    @staticmethod
    def _glyphs() -> Glyphs:
        return ASCII if ascii_only() else UNICODE

    def on_resize(self) -> None:
        """A terminal of another size may have moved what it shows."""
        self.redraw()

    def redraw(self) -> None:
        """Paint everything again, over whatever another program has written."""
        self.front.clear()
        self.screen.refresh()

    def detach(self) -> None:
        """Leave; whatever runs goes on."""
        raise NotImplementedError

    def detach_soon(self) -> bool:
        """Leave, asked from any thread or signal handler; False where there is nothing to end."""
        if self._loop is None:
            return False
        self._loop.call_soon_threadsafe(self.detach)
        return True

    @property
    def failure(self) -> Exception | None:
        """What ended the app, if it was a mistake of its own."""
        return self._exception

    def _handle_exception(self, error: Exception) -> None:
        """End; the story is for a file (see `show`) and not for the screen."""
        super()._handle_exception(error)
        self._exit_renderables.clear()


def show(make: Callable[[], TerminalApp], finish: Callable[[], None] | None = None) -> int:
    """Make an app and show it until the user leaves.

    The mouse is left to the terminal: it keeps selecting text there, and no report of its motion
    goes over a slow line. ``TORCHTOP_MOUSE=1`` turns it on.

    Args:
        make: makes the app.
        finish: called when it has ended, however it did.

    Returns:
        The app's exit status, or 1 after an error of the app itself, told in one line.
    """
    error: BaseException | None = None
    status = 0
    try:
        app = make()
        detach_on_signals(app.detach_soon)
        app.run(mouse=os.environ.get("TORCHTOP_MOUSE") == "1")
        error, status = app.failure, app.return_code or 0
    except Exception as raised:
        error = raised
    finally:
        if finish is not None:
            finish()
    if error is not None:
        from torchtop.app.crash import report

        with contextlib.suppress(OSError):
            print(f"torchtop: {report(error)}", file=sys.stderr)
        status = 1
    silence_if_gone()
    return status
