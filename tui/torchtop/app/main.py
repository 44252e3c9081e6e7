"""The app: holds the view, follows a session, and hands both to the screen."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.screen import Screen

from torchtop.app import messages
from torchtop.app.base import TerminalApp, show
from torchtop.app.controller import Controller, LeftBehind
from torchtop.app.follow import FollowThread
from torchtop.app.gone import silence_if_gone
from torchtop.app.keys import BINDINGS, PALETTE
from torchtop.app.operations import Operations
from torchtop.app.screens.main import MainScreen
from torchtop.app.terminal import Terminal
from torchtop.app.text import clean
from torchtop.app.thrift import ThriftyCompositor
from torchtop.app.view import View
from torchtop.session.state import SessionState

_OFFERED = ("session", "interval", "filter")
"""Actions that the palette offers although the footer does not."""


LEFT_EVERY_S = 3.0
"""How often it is looked whether what a lost session has left is still there."""


class TorchtopApp(TerminalApp):
    """The viewer of sessions.

    Args:
        controller: starts, stops and finds sessions.
        session: the directory to show; the idle view of this machine when omitted.
        replay: play the session from its beginning instead of showing it as it is.
        interval_s: seconds between two looks.
    """

    CSS = """
    * { scrollbar-size: 0 0; }
    .-ascii Toast { border-left: ascii $accent; border-right: none; }
    """
    ENABLE_COMMAND_PALETTE = True
    ESCAPE_TO_MINIMIZE = False
    BINDINGS: ClassVar[list[BindingType]] = [PALETTE]

    def __init__(
        self,
        controller: Controller,
        session: Path | None = None,
        replay: bool = False,
        interval_s: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.controller, self.session, self.replay = controller, session, replay
        self.view = View(
            glyphs=self._glyphs(),
            textured=self.no_color,
            interval_s=interval_s,
        )
        self.operations = Operations(controller, self.post_message)
        self.main = MainScreen(self.front)
        self._foreign_screen = False
        self._follower: FollowThread | None = None
        self._held: messages.SnapshotReady | None = None
        self._look_for_left_s: float | None = None
        self.left: tuple[LeftBehind, ...] = ()
        """What all lost sessions had left on this machine when the viewer was started."""

    def get_default_screen(self) -> Screen[None]:
        """The only screen that is not a modal."""
        return self.main

    def on_mount(self) -> None:
        """Begin to follow, once there is a first frame to fill."""
        self.theme_changed_signal.subscribe(self, lambda _theme: self._repaint())
        self.screen_change_signal.subscribe(self, self._screen_changed)
        self.main.set_class(self.view.glyphs.ascii, "-ascii")
        for signal in (self.app_suspend_signal, self.app_resume_signal):
            signal.subscribe(self, lambda _app: self.redraw())
        self.begin()

    def begin(self) -> None:
        """Read the catalog, and follow the session or this machine."""
        self.operations.load()
        self.operations.look_for_left(None)
        self.operations.shown = self.session
        if self.session is not None:
            self.follow(self.session, self.replay)
        else:
            self.update_view(snapshot=SessionState().snapshot())
            self.operations.idle()

    def follow(self, directory: Path, replay: bool = False) -> None:
        """Show another directory."""
        if self._follower is not None:
            self._follower.end()
        self.replay = replay
        self._look_for_left_s = None
        shown = self.view.snapshot if self.session is None else None
        self.update_view(snapshot=shown, paused=False, replay=None, left=None)
        self._follower = FollowThread(
            directory, self.post_message, self.view.interval_s, replay=replay
        )
        self._follower.start()

    def update_view(self, **changes: Any) -> None:
        """Change the view and draw it."""
        self.view = dataclasses.replace(self.view, **changes)
        self.main.show(self.view)

    def on_snapshot_ready(self, message: messages.SnapshotReady) -> None:
        """Draw what the follower saw, unless the display is held."""
        follower = self._follower
        if follower is None or message.source != follower.directory:
            return
        if self.view.paused and not self.replay:
            self._held = message
            return
        self.update_view(
            snapshot=message.snapshot,
            logs=message.logs,
            replay=message.replay,
            baseline=message.baseline,
            paused=False,
        )
        # Again while there is something: what a killed supervisor leaves may be on its way out.
        due = self._look_for_left_s is None or (
            bool(self.view.left) and time.monotonic() > self._look_for_left_s
        )
        if message.snapshot.status == "lost" and due:
            self._look_for_left_s = time.monotonic() + LEFT_EVERY_S
            self.operations.look_for_left(self.session)

    def on_left_found(self, message: messages.LeftFound) -> None:
        """What lost sessions have left is known: show it, and ask where that was wanted."""
        if message.session is None:
            if message.processes and not self.left:
                many = len(message.processes)
                told = "a process" if many == 1 else f"{many} processes"
                self.tell(f"lost sessions have left {told} running: ctrl+p, End leftovers")
            self.left = message.processes
        elif message.session == self.session:
            self.update_view(left=message.processes)
        if message.ask:
            self.main.offer_sweep(message.session, message.processes)

    def on_catalog_ready(self, message: messages.CatalogReady) -> None:
        """The workloads are known."""
        self.update_view(catalog=message.entries)
        self.main.catalog_read(message.key)

    def on_progress(self, message: messages.Progress) -> None:
        """An operation goes on, or is over."""
        self.update_view(busy=message.text)

    def on_follow(self, message: messages.Follow) -> None:
        """Another session is to be shown."""
        if message.idle and self.session is not None:
            return  # a session was started before the samples were there
        self.session = None if message.idle else message.directory
        self.follow(message.directory, message.replay)

    def on_consented(self, message: messages.Consented) -> None:
        """A workload of the user's own may start, or is to be agreed to first."""
        self.main.consented(message.name, dict(message.options), message.command)

    def on_stacks_taken(self, message: messages.StacksTaken) -> None:
        """The ranks have answered."""
        if message.session == self.session:
            self.main.show_stacks(message.stacks)

    def on_step_inspected(self, message: messages.StepInspected) -> None:
        """The ranks have looked at a step."""
        if message.session == self.session:
            self.main.show_inspected(message.found)

    def on_told(self, message: messages.Told) -> None:
        """A line for the user."""
        self.tell(message.text, message.error)

    def tell(self, text: str, error: bool = False) -> None:
        """Show a line for a while."""
        self.notify(
            clean(text, 400),
            severity="error" if error else "information",
            timeout=10 if error else 5,
            markup=False,
        )

    def toggle_pause(self) -> None:
        """Hold the display or the replay, or let it go on."""
        if self.replay and self._follower is not None:
            self._follower.toggle()
            return
        paused = not self.view.paused
        self.update_view(paused=paused)
        held, self._held = self._held, None
        if not paused and held is not None:
            self.on_snapshot_ready(held)

    def set_interval_s(self, seconds: float) -> None:
        """Look once in so many seconds."""
        if self._follower is not None:
            self._follower.interval_s = seconds
            self._follower.look_now()
        self.update_view(interval_s=seconds)

    def seek(self, seconds: float) -> None:
        """Move a replay."""
        if self.replay and self._follower is not None:
            self._follower.seek(seconds)

    def change_speed(self, steps: int) -> None:
        """Let a replay go faster or slower."""
        if self._follower is not None:
            self._follower.change_speed(steps)

    def detach(self) -> None:
        """Leave; whatever runs goes on."""
        if self._follower is not None:
            self._follower.end()
        self.exit(0)

    async def action_quit(self) -> None:
        """Ctrl+Q, and the palette's quit."""
        self.main.action_quit()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette offers the workloads, and what the keys of the footer do."""
        for entry in self.view.catalog:
            name, summary = clean(entry.name, 60), clean(entry.problem or entry.summary, 200)
            start = partial(self.main.request_start, entry.name, {})
            yield SystemCommand(f"Start {name}", summary, start)
        for binding in BINDINGS:
            offered = binding.show or binding.action.startswith(_OFFERED)
            if offered and binding.tooltip:  # a second key for the same has none
                run = partial(self.main.run_action, binding.action)
                yield SystemCommand(binding.description.capitalize(), binding.tooltip, run)
        if self.left:
            end = partial(self.operations.look_for_left, None, ask=True)
            yield SystemCommand("End leftovers", "of sessions without a supervisor", end)
        yield SystemCommand("Theme", "change the colours", self.action_change_theme)

    def pop_screen(self) -> AwaitComplete:
        """Close a modal; with none left, a key that came twice asks for nothing."""
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()

    def _screen_changed(self, screen: Screen[Any]) -> None:
        """Screens of Textual's own (the palette) write without telling the front."""
        foreign = not isinstance(screen._compositor, ThriftyCompositor)
        if foreign or self._foreign_screen:
            self.front.clear()
        self._foreign_screen = foreign

    def _repaint(self) -> None:
        self.palette = self._make_palette()
        self.main.repaint()


def run_viewer(
    controller: Controller,
    session: Path | None = None,
    replay: bool = False,
    interval_s: float = 1.0,
) -> int:
    """Show a session until the user leaves.

    Args:
        controller: starts, stops and finds sessions.
        session: the directory to show; this machine when omitted.
        replay: play it from its beginning.
        interval_s: seconds between two looks.

    Returns:
        The exit status: 0, or 1 after an error of the viewer itself, told in one line.
    """
    for stream, name in ((sys.__stdin__, "input"), (sys.__stderr__, "error")):
        if stream is None or not stream.isatty():
            told = f"torchtop: standard {name} is no terminal; use --no-tui for plain lines"
            try:
                print(told, file=sys.stderr)
            except OSError:  # it was one, and has gone since
                silence_if_gone()
                return 0
            return 2
    return show(
        lambda: TorchtopApp(controller, session, replay, interval_s, driver_class=Terminal),
        controller.close,
    )
