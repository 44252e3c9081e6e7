"""What keys ask of sessions: each asks the user first where something would be lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.widget import Widget

from torchtop.app.controller import LeftBehind
from torchtop.app.messages import Follow
from torchtop.app.text import clean, cut
from torchtop.session.inspections import Inspected
from torchtop.session.stacks import RankStack
from torchtop.session.state import Snapshot

if TYPE_CHECKING:
    from torchtop.app.main import TorchtopApp


class Requests(Widget):
    """The actions of the main screen that concern sessions."""

    app: TorchtopApp

    @property
    def shown(self) -> Snapshot | None:
        """The session on the screen; None while idle."""
        snapshot = self.app.view.snapshot
        return None if snapshot is None or snapshot.status == "idle" else snapshot

    @property
    def label(self) -> str:
        """What the session is called in questions."""
        meta = self.shown.meta if self.shown else {}
        return cut(clean(meta.get("name") or meta.get("workload") or "the run", 200), 40)

    @property
    def live(self) -> Path | None:
        """The directory of the live run on the screen."""
        snapshot = self.shown
        if snapshot is None or self.app.replay:
            return None
        return self.app.session if snapshot.live or snapshot.unseen_supervisor else None

    def action_workload(self, key: int) -> None:
        """Start the workload of a digit."""
        for entry in self.app.view.catalog:
            if entry.key == key:
                self.request_start(entry.name, {})
                return
        self.app.operations.load(key)  # its file may have been written since

    def catalog_read(self, key: int | None) -> None:
        """Show a catalog that was read anew, and start what the digit stands for that was typed."""
        from torchtop.app.screens.picker import Picker

        catalog = self.app.view.catalog
        if isinstance(self.app.screen, Picker):
            self.app.screen.renew(catalog)
        if key is None:
            return
        name = next((entry.name for entry in catalog if entry.key == key), None)
        if name is None:
            self.app.tell(f"no workload has the key {key}: w lists them")
        elif len(self.app.screen_stack) == 1:
            self.request_start(name, {})

    def action_pick(self) -> None:
        """Pick a workload from the list, which is read anew: files may have changed."""
        from torchtop.app.screens.picker import Picker

        def picked(name: str | None) -> None:
            if name:
                self.request_start(name, {})

        self.app.push_screen(Picker(self.app.view.catalog), picked)
        self.app.operations.load()

    def action_start(self) -> None:
        """Start what was shown again, or pick."""
        if self.live:
            self.app.tell(f"{self.label} is running: x stops it, r starts it again")
        elif self.shown and self.shown.meta.get("workload"):
            self._again()
        else:
            self.action_pick()

    def action_restart(self) -> None:
        """Stop the run, and start the same again."""
        if self.shown:
            self._again()
        else:
            self.app.tell("nothing to restart: w picks a workload")

    def _again(self) -> None:
        assert self.shown is not None
        meta = self.shown.meta
        options = meta.get("options")
        told = {str(k): _text(v) for k, v in options.items()} if isinstance(options, dict) else {}
        self.request_start(str(meta.get("workload")), told)

    def request_start(self, name: str, options: dict[str, str]) -> None:
        """Start a workload; one from a file has its command agreed to before."""
        entry = next((e for e in self.app.view.catalog if e.name == name), None)
        if entry and entry.problem:
            self.app.tell(f"{name}: {entry.problem}", error=True)
        elif entry and entry.source == "file":
            self.app.operations.consent(name, options)
        else:
            self._start(name, options)

    def consented(self, name: str, options: dict[str, str], command: str | None) -> None:
        """Go on with a start, or show the command that the user has to agree to."""
        from torchtop.app.screens.consent import Consent

        if command is None:
            self._start(name, options)
            return
        agree = partial(self.app.operations.agree, name, options)
        self._ask(Consent(name, command), agree=agree)

    def _start(self, name: str, options: dict[str, str]) -> None:
        """Start; with a live run ask first, then stop it before."""
        from torchtop.app.screens.ask import ask_replay, ask_switch

        session, label, operations = self.live, self.label, self.app.operations
        if session:
            self._ask(
                ask_switch(label, name),
                switch=lambda: operations.switch(session, label, name, options),
            )
        elif self.app.replay:
            self._ask(ask_replay(name), start=lambda: operations.start(name, options))
        else:
            operations.start(name, options)

    def _ask(self, question: object, **answers: Callable[[], None]) -> None:
        from torchtop.app.screens.ask import Ask

        assert isinstance(question, Ask)

        def answered(value: str | None) -> None:
            if value in answers:
                answers[value]()

        self.app.push_screen(question, answered)

    def action_stop(self) -> None:
        """Ask whether to stop the run."""
        from torchtop.app.screens.ask import ask_stop

        session, label, operations = self.live, self.label, self.app.operations
        if session is None and self.shown and self.shown.status == "lost":
            operations.look_for_left(self.app.session, ask=True)
            return
        if session is None or self.shown is None:
            recording = "this is a recording: there is nothing to stop"
            self.app.tell(recording if self.app.replay and self.shown else "nothing is running")
            return
        self._ask(
            ask_stop(label, self.shown.status == "stopping"),
            stop=lambda: operations.stop(session, label),
            kill=lambda: operations.kill(session, label),
        )

    def offer_sweep(self, session: Path | None, left: tuple[LeftBehind, ...]) -> None:
        """Ask whether to end what a lost session, or all of them, have left."""
        from torchtop.app.screens.ask import ask_sweep

        if not left:
            self.app.tell("nothing of it is left on this machine")
            return
        sweep = partial(self.app.operations.sweep, session)
        self._ask(ask_sweep(self.label if session else "lost sessions", left), sweep=sweep)

    def action_failure(self) -> None:
        """Show all that is known of a failure."""
        from torchtop.app.panes.failure import failed, story
        from torchtop.app.screens.lines import Lines

        if self.shown is None or not failed(self.shown):
            self.app.tell("nothing has failed" if self.shown else "no session is shown")
            return
        width = max(20, min(120, self.app.size.width - 6))
        self.app.push_screen(Lines("failure", story(self.shown, width), "f"))

    def action_stacks(self) -> None:
        """Ask every rank where its Python code stands."""
        if (session := self.live) is not None:
            self.app.operations.stacks(session)
        else:
            self.app.tell("only ranks of a live run have stacks to show")

    def show_stacks(self, stacks: tuple[RankStack, ...]) -> None:
        """Show them, each with the moment when its rank was last seen."""
        from torchtop.app.screens.lines import Lines, stack_lines

        if len(self.app.screen_stack) == 1:
            self.app.push_screen(Lines("stacks", stack_lines(stacks, self.shown), "t"))

    def action_inspect(self) -> None:
        """Have each rank look at one step for calls that wait for its GPU."""
        if (session := self.live) is not None:
            self.app.operations.inspect(session)
        else:
            self.app.tell("only ranks of a live run have a step to inspect")

    def show_inspected(self, found: tuple[Inspected, ...]) -> None:
        """Show what they have found."""
        from torchtop.app.screens.lines import Lines, inspected_lines

        if len(self.app.screen_stack) == 1:
            self.app.push_screen(Lines("calls that wait for the GPU", inspected_lines(found), "i"))

    def action_save(self) -> None:
        """Save the summary."""
        if self.app.session and self.shown:
            self.app.operations.save(self.app.session)
        else:
            self.app.tell("no session to save")

    def action_options(self) -> None:
        """Show the options in force."""
        from torchtop.app.screens.lines import Lines, option_lines

        if self.shown:
            meta = self.shown.meta
            own = (e for e in self.app.view.catalog if e.name == meta.get("workload"))
            defaults = next((entry.defaults(meta) for entry in own), {})
            self.app.push_screen(Lines("options", option_lines(self.shown, defaults), "o"))
        else:
            self.app.tell("no session is shown")

    def action_session(self, direction: int) -> None:
        """Show another session."""
        self.app.operations.neighbour(direction)

    def action_browse(self) -> None:
        """List all sessions, and show the one that is picked."""
        from torchtop.app.browser.screen import Browser

        def picked(follow: Follow | None) -> None:
            if follow is not None:
                self.app.operations.shown = follow.directory
                self.app.post_message(follow)

        self.app.push_screen(Browser(), picked)

    def action_quit(self) -> None:
        """Leave; with a live run ask what becomes of it."""
        from torchtop.app.screens.ask import ask_quit

        session, label, app = self.live, self.label, self.app
        if session is None:
            app.detach()
            return
        self._ask(
            ask_quit(label),
            detach=app.detach,
            stop=lambda: app.operations.stop_then(
                session, label, lambda: app.call_from_thread(app.detach)
            ),
        )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
