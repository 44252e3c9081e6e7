"""The app of a sweep: a pure function of its directory, as the viewer is of a session's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Protocol

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from torchtop.app.base import TerminalApp, show
from torchtop.app.keys import DISPLAY, PROGRAM, key_of
from torchtop.app.panes.pane import Rows
from torchtop.app.sweep import rows
from torchtop.app.sweep.rows import Seen
from torchtop.app.terminal import Terminal
from torchtop.app.text import Row
from torchtop.app.thrift import Front, ThriftyCompositor
from torchtop.app.view import View
from torchtop.session.follow import Follower
from torchtop.session.paths import SessionError, sessions_root
from torchtop.session.sweeps import SweepPaths, read_sweep

_LOOK_EVERY_S = 1.0

_SWEEP = Binding.Group("sweep")
_key = partial(key_of, "sweep")


class Measuring(Protocol):
    """The process that measures a sweep, as a screen sees it."""

    @property
    def is_alive(self) -> bool:
        """Whether something measures it."""
        ...

    def stop(self) -> None:
        """Ask it to stop; a second time: at once."""
        ...

    def trouble(self) -> str | None:
        """Why it ended before it could measure, in one line; None where it did not."""
        ...


class SweepSeen(Message):
    """How a sweep stands.

    Args:
        seen: that.
    """

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen


class Reader(threading.Thread):
    """Reads the sweep, and the session that runs for it, once a second.

    Args:
        paths: the sweep.
        measuring: its process.
        post: takes the messages.
    """

    def __init__(
        self, paths: SweepPaths, measuring: Measuring, post: Callable[[Message], Any]
    ) -> None:
        super().__init__(name="sweep-reader", daemon=True)
        self._paths, self._measuring, self._post = paths, measuring, post
        self._end = threading.Event()
        self._follower: Follower | None = None

    def run(self) -> None:
        """Look, and tell."""
        while not self._end.is_set():
            self._post(SweepSeen(self.look()))
            self._end.wait(_LOOK_EVERY_S)

    def end(self) -> None:
        """Look no more."""
        self._end.set()

    def look(self) -> Seen:
        """How things stand."""
        live, trouble = self._measuring.is_alive, self._measuring.trouble()
        try:
            sweep = read_sweep(self._paths)
        except SessionError:
            return Seen(None, live, trouble=trouble)
        name = sweep["progress"].get("session") if live else None
        if not name:
            self._follower = None
            return Seen(sweep, live, trouble=trouble)
        if self._follower is None or self._follower.paths.id != name:
            self._follower = Follower(sessions_root() / name)
        snapshot = self._follower.poll()
        return Seen(sweep, live, snapshot.analysis, snapshot.elapsed_s, trouble)


class Line(Rows):
    """The header or the footer."""

    DEFAULT_CSS = "Line { height: 1; }"
    app: SweepApp  # type: ignore[assignment]

    def compute(self, width: int, height: int) -> list[Row]:
        """One row."""
        app = self.app
        if self.id == "header":
            return [rows.header(app.seen, width)]
        return [rows.footer(app.seen, app.asking, width)]


class Table(Rows):
    """What lies between: as much of it as fits."""

    app: SweepApp  # type: ignore[assignment]
    first = 0

    def compute(self, width: int, height: int) -> list[Row]:
        """The rows from the first that is shown."""
        found = rows.body(self.app.seen, width, self.view.glyphs)
        self.first = max(0, min(self.first, len(found) - height))
        return found[self.first :]

    def move(self, lines: int) -> None:
        """Show what lies so many lines below."""
        self.first += lines
        self.redraw()


class SweepScreen(Screen[None]):
    """The only screen that is not a modal.

    Args:
        front: what the terminal shows.
    """

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._compositor = ThriftyCompositor(front)


class SweepApp(TerminalApp):
    """Shows a sweep until the user leaves.

    Args:
        paths: the sweep.
        measuring: the process that measures it.
    """

    CSS = "* { scrollbar-size: 0 0; } Screen { layout: vertical; overflow: hidden; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        key_of(
            "sweep", "q,ctrl+c", "leave", "leave; asks first while something is measured", _SWEEP
        ),
        _key("l", "detach", "leave; measuring goes on", _SWEEP),
        _key("x", "stop", "stop measuring; what was measured is kept", _SWEEP),
        _key("escape", "stay", "stay, where the screen has asked", _SWEEP),
        _key("down,j", "move(1)", "down", DISPLAY),
        _key("up,k", "move(-1)", "up", DISPLAY),
        _key("pagedown,space", "move(10)", "page down", DISPLAY),
        _key("pageup", "move(-10)", "page up", DISPLAY),
        _key("home", "move(-100000)", "to the start", DISPLAY),
        _key("end", "move(100000)", "to the end", DISPLAY),
        _key("question_mark", "help", "these keys", PROGRAM),
        _key("ctrl+l", "redraw", "paint everything again", PROGRAM),
    ]

    def __init__(self, paths: SweepPaths, measuring: Measuring, **options: Any) -> None:
        super().__init__(**options)
        self.view = View(glyphs=self._glyphs())
        self.seen = Seen(live=True)
        self.asking = False
        self._measuring = measuring
        self._reader = Reader(paths, measuring, self.post_message)

    def get_default_screen(self) -> Screen[None]:
        """One that sheets may lie over."""
        return SweepScreen(self.front)

    def compose(self) -> ComposeResult:
        """Line, table, line."""
        yield Line(id="header")
        yield Table(id="table")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Begin to read."""
        self._reader.start()

    def on_sweep_seen(self, message: SweepSeen) -> None:
        """Draw what has changed."""
        self.seen = message.seen
        self._redraw()

    def _redraw(self) -> None:
        for each in self.screen_stack[0].query(Rows):  # a sheet may lie over it
            each.redraw()

    def action_move(self, lines: int) -> None:
        """Scroll."""
        self.query_one(Table).move(lines)

    def action_leave(self) -> None:
        """Leave, and ask first while something is measured."""
        if not self.seen.live or self.asking:
            self.detach()
            return
        self.asking = True
        self._redraw()

    def action_stay(self) -> None:
        """Take no answer."""
        self.asking = False
        self._redraw()

    def action_help(self) -> None:
        """The keys."""
        from torchtop.app.screens.lines import key_sheet

        self.push_screen(key_sheet(self.screen, self.BINDINGS))

    def action_redraw(self) -> None:
        """Paint everything again, over what another program has written."""
        self.redraw()

    def action_stop(self) -> None:
        """Stop measuring; the screen stays until the run has ended."""
        self.asking = False
        if self.seen.live:
            self._measuring.stop()
        self._redraw()

    def detach(self) -> None:
        """Leave; the measuring goes on."""
        self._reader.end()
        self.exit(0)

    def action_detach(self) -> None:
        """The key for it."""
        self.detach()

    async def action_quit(self) -> None:
        """Ctrl+Q."""
        self.action_leave()


def run_screen(paths: SweepPaths, measuring: Measuring) -> int:
    """Show a sweep until the user leaves.

    Args:
        paths: the sweep.
        measuring: the process that measures it.

    Returns:
        0, or 1 after an error of the screen itself, told in one line.
    """
    return show(lambda: SweepApp(paths, measuring, driver_class=Terminal))
