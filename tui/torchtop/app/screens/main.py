"""The main screen: the board, its two lines, and what keys do to the display."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from torchtop.app.follow import INTERVALS_S, SEEK_S
from torchtop.app.keys import BINDINGS, PALETTE
from torchtop.app.panes.pane import Pane, Rows
from torchtop.app.screens.board import Board, FooterLine, HeaderLine
from torchtop.app.screens.requests import Requests
from torchtop.app.thrift import Front, ThriftyCompositor
from torchtop.app.view import View

if TYPE_CHECKING:
    from torchtop.app.main import TorchtopApp


class MainScreen(Requests, Screen[None]):
    """Everything but the modals."""

    DEFAULT_CSS = "MainScreen { layout: vertical; overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [b for b in BINDINGS if b is not PALETTE]
    AUTO_FOCUS = ""
    app: TorchtopApp

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._compositor = ThriftyCompositor(front)
        self.header = HeaderLine(id="header")
        self.footer = FooterLine(id="footer")
        self.board = Board()

    def compose(self) -> ComposeResult:
        """Line, board, line."""
        yield self.header
        yield self.board
        yield self.footer

    def show(self, view: View) -> None:
        """Draw another view."""
        self.header.show(view)
        self.board.show(view)
        self.footer.show(view)

    def repaint(self) -> None:
        """Paint all of it again: the theme changed."""
        for rows in self.query(Rows):
            rows.repaint()

    def action_pane(self, name: str) -> None:
        """A pane in focus, then alone, then among the others again."""
        board = self.board
        if board.zoomed == name:
            board.zoom(None)
            return
        pane = board.query_one(f"#{name}", Pane)
        if board.zoomed is None and pane.display and self.focused is not pane:
            self.set_focus(pane)
            return
        board.zoom(name)
        self.set_focus(pane)

    def action_zoom(self) -> None:
        """The pane in focus alone, and back."""
        focused = self.focused
        name = focused.id if isinstance(focused, Pane) else "verdict"
        self.board.zoom(None if self.board.zoomed else name)

    def action_back(self) -> None:
        """All panes, following, without a filter."""
        logs = self.board.logs
        if self.board.zoomed:
            self.board.zoom(None)
        elif logs.filter_text or logs.back:
            logs.set_filter("")
        else:
            self.set_focus(None)

    def action_turn(self, step: int) -> None:
        """The next or the previous pane; alone, if one is."""
        if self.board.zoomed:
            self.board.turn(step)
        elif step > 0:
            self.focus_next()
        else:
            self.focus_previous()

    def action_pause(self) -> None:
        """Hold the display, or the replay."""
        self.app.toggle_pause()

    def action_interval(self, step: int) -> None:
        """Look at the session more or less often; a replay goes faster or slower."""
        if self.app.view.replay:
            self.app.change_speed(-step)
            return
        now = self.app.view.interval_s
        at = min(range(len(INTERVALS_S)), key=lambda i: abs(INTERVALS_S[i] - now))
        self.app.set_interval_s(INTERVALS_S[max(0, min(len(INTERVALS_S) - 1, at + step))])

    def action_sideways(self, step: int) -> None:
        """Another rank's log, or another moment of a replay."""
        logs = self.board.logs
        if self.app.view.replay and not logs.has_focus:
            self.app.seek(step * SEEK_S)
        elif logs.display and abs(step) == 1:
            logs.turn_rank(step)

    def action_replay_start(self) -> None:
        """The start of the recording."""
        self.app.seek(float("-inf"))

    def action_replay_end(self) -> None:
        """The end of the recording."""
        self.app.seek(float("inf"))

    def action_scroll(self, lines: int) -> None:
        """Move through the logs."""
        if self.board.logs.display:
            self.board.logs.scroll_lines(lines)

    def action_filter(self) -> None:
        """Narrow the logs by a text."""
        from torchtop.app.screens.prompt import Prompt

        logs = self.board.logs
        before = logs.filter_text
        if not logs.display:
            self.action_pane("logs")

        def done(text: str | None) -> None:
            logs.set_filter(before if text is None else text)

        self.app.push_screen(Prompt("filter the logs", before, logs.set_filter), done)

    def action_redraw(self) -> None:
        """Paint everything again, over what another program has written."""
        self.app.redraw()

    def action_help(self) -> None:
        """The keys."""
        from torchtop.app.screens.lines import key_sheet

        self.app.push_screen(key_sheet(self, BINDINGS))
