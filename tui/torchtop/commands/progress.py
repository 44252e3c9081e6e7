"""How far a command has come that takes long, on a terminal."""

from __future__ import annotations

import sys
import time

_EVERY_S = 0.2
_SILENT_S = 1.0
"""What is done sooner needs no telling."""


class Progress:
    """One line on stderr that counts up, where that is a terminal.

    Args:
        doing: what is done, such as "analysing abc".
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._shows = sys.stderr.isatty()
        self._next_s = time.monotonic() + _SILENT_S
        self._width = 0

    def __call__(self, part: float) -> None:
        """Tell that a part (0..1) is done."""
        now = time.monotonic()
        if self._shows and now >= self._next_s:
            self._next_s = now + _EVERY_S
            self._write(f"{self._doing}: {100 * min(1.0, max(0.0, part)):.0f} %")

    def end(self) -> None:
        """Take the line away."""
        if self._width:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)
