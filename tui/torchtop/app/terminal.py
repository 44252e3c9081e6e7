"""Our own dealings with the terminal: its end means detach, and odd bytes are no reason to die."""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
from codecs import getincrementaldecoder
from collections.abc import Callable
from selectors import EVENT_READ, SelectSelector
from types import FrameType
from typing import Any

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

LEAVE_WITHIN_S = 0.8
"""After a signal to leave: a terminal that takes no output must not hold the process."""

_ASCII_TERMINALS = frozenset({"linux", "vt100", "vt102", "vt220", "dumb"})
"""Terminals whose fonts lack block elements."""


class Terminal(LinuxDriver):
    """Textual's driver, with another reading of the input.

    Textual's own dies of bytes above 0x7F that are not UTF-8 (old mouse reports after a reconnect),
    shows a traceback when the terminal is gone, and spins when standard input has ended.
    """

    def _run_input_thread(self) -> None:
        """Read keys; a mistake here ends the app as any other does."""
        try:
            self.run_input_thread()
        except Exception as error:
            self._app.call_later(self._app._handle_exception, error)

    def run_input_thread(self) -> None:
        """Read keys until the app ends, or the terminal does."""
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        parser = XTermParser(self._debug)
        with SelectSelector() as selector:
            selector.register(self.fileno, EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(0.1):
                    try:
                        data = os.read(self.fileno, 4096)
                    except OSError:
                        data = b""
                    if not data:
                        hang_up()
                        return
                    for event in parser.feed(decode(data)):
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)


def hang_up() -> None:
    """The terminal is gone: as if the kernel had said so."""
    os.kill(os.getpid(), signal.SIGHUP)


def detach_on_signals(detach: Callable[[], bool]) -> None:
    """Make SIGHUP, SIGTERM and SIGINT leave in order; to be called on the main thread, and early.

    Before the screen is there: a terminal may be gone as soon as its keys are read, and its state
    as it is then is what is restored.

    Plain handlers and not the loop's own: while a stalled terminal blocks the loop's thread, Python
    still runs these on it.

    Args:
        detach: ends the app, safe to call from any thread; False when there is no app to end yet.
    """
    saved = _attributes()

    def leave(_number: int, _frame: FrameType | None) -> None:
        watchdog = threading.Timer(LEAVE_WITHIN_S, _leave_now, [saved])
        watchdog.daemon = True
        watchdog.start()
        if not detach():
            _leave_now(saved)

    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


def _attributes() -> list[Any] | None:
    try:
        return termios.tcgetattr(0)
    except (termios.error, ValueError):
        return None


def _leave_now(saved: list[Any] | None) -> None:
    """Restore what can be restored without waiting, and end the process."""
    try:
        os.set_blocking(2, False)
        os.write(2, b"\x1b[?2004l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l")
    except OSError:
        pass
    try:
        if saved is not None:
            termios.tcsetattr(0, termios.TCSANOW, saved)
    except termios.error:
        pass
    os._exit(0)


def ascii_only() -> bool:
    """Whether the terminal can show ASCII alone: its encoding is not UTF-8, or its font is poor."""
    encoding = (getattr(sys.__stderr__, "encoding", None) or "").lower().replace("-", "")
    return encoding != "utf8" or os.environ.get("TERM", "") in _ASCII_TERMINALS
