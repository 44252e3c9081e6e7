"""The session browser: all sessions over the board, with what can be done to the one marked."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType

from torchtop.app.browser.compared import compared_rows
from torchtop.app.browser.messages import SessionsCompared, SessionsListed
from torchtop.app.browser.rows import STATES, Shown, detail, passes, table
from torchtop.app.browser.work import Worker
from torchtop.app.keys import sheet_key
from torchtop.app.messages import Follow, Told
from torchtop.app.screens.lines import Lines, key_sheet
from torchtop.app.screens.sheet import Sheet
from torchtop.app.text import Row, Span, fit
from torchtop.session.overview import Entry

_DETAIL_ROWS = 3
_WIDE = 100
_KEYS = (
    ("Enter", "open"),
    ("p", "replay"),
    ("m", "mark"),
    ("c", "compare"),
    ("b", "baseline"),
    ("f", "state"),
    ("/", "filter"),
    ("?", "help"),
    ("Esc", "back"),
)
_ONLY_WIDE = "p"
"""The key that a narrow line has no room for; help tells it."""


class Browser(Sheet["Follow | None"]):
    """Lists the sessions; closes with the one to show, or with None."""

    heading = "sessions"
    BINDINGS: ClassVar[list[BindingType]] = [
        sheet_key("enter", "open", "open it: live, or as it ended"),
        sheet_key("p", "replay", "play it back"),
        sheet_key("m,space", "mark", "mark it, to compare another one with it"),
        sheet_key("c", "compare", "compare it with the marked one, else with the baseline"),
        sheet_key("b", "baseline", "make it the baseline of its workload, or no longer"),
        sheet_key("f", "state", "all, live, ended, failed, lost"),
        sheet_key("/", "type", "only sessions with a text in their line"),
        sheet_key("up,k", "move(-1)", "up"),
        sheet_key("down,j", "move(1)", "down"),
        sheet_key("pageup", "move(-10)", "page up"),
        sheet_key("pagedown", "move(10)", "page down"),
        sheet_key("home", "move(-100000)", "first"),
        sheet_key("end", "move(100000)", "last"),
        sheet_key("backspace", "erase", "erase"),
        sheet_key("question_mark", "help", "these keys"),
        sheet_key("escape,ctrl+c,q", "close", "back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.entries: tuple[Entry, ...] = ()
        self.shown = Shown((), 0, 0, "all", "", False, None, {})
        self._loaded = False
        self._worker = Worker(self.app.controller, self.post_message)

    def on_mount(self) -> None:
        """Begin to look."""
        self._worker.start()

    def on_unmount(self) -> None:
        """Look no more."""
        self._worker.end()

    def wanted(self) -> tuple[int, int]:
        """All of the screen."""
        return self.app.size.width, self.app.size.height

    def rows(self, width: int, height: int) -> list[Row]:
        """The list, the session under the cursor, and the keys."""
        below = _DETAIL_ROWS + 2 if height >= 12 else 1
        if not self._loaded:
            above = [fit([("   reading the sessions ...", "dim")], width)]
            above += [fit([], width)] * (height - below - 1)
        else:
            above = table(self.shown, width, height - below)
        rule = self.app.view.glyphs.rule
        rows = [*above]
        if below > 1:
            rows.append(fit([(rule * width, "rule")], width))
            rows += detail(self.current, self.shown.baselines, width)
        keys: list[Span] = []
        gap = " " if width < _WIDE else "   "
        for key, told in _KEYS:
            if width < _WIDE and key == _ONLY_WIDE:
                continue
            keys += [(key, "key"), (f" {told}{gap}", "dim")]
        return [*rows, fit(keys, width)]

    @property
    def current(self) -> Entry | None:
        """The session under the cursor."""
        entries = self.shown.entries
        return entries[self.shown.at] if entries else None

    def on_sessions_listed(self, message: SessionsListed) -> None:
        """Draw the list anew; the cursor stays on its session."""
        current = self.current
        if not self._loaded and current is None:
            shown = self.app.session
            current = next((e for e in message.entries if e.paths.root == shown), None)
        self.entries, self._loaded = message.entries, True
        self._show(current, baselines=message.baselines)

    def _show(self, current: Entry | None, **changes: object) -> None:
        """Filter again, with the cursor on `current` where that passes, else where it was."""
        told = {**vars(self.shown), **changes}
        found = tuple(entry for entry in self.entries if passes(entry, told["state"], told["text"]))
        places = {str(entry.paths.root): place for place, entry in enumerate(found)}
        at = places.get(str(current.paths.root)) if current else None
        if at is None:
            at = max(0, min(self.shown.at, len(found) - 1))
        told.update(entries=found, total=len(self.entries), at=at)
        self.shown = Shown(**told)
        self.refresh_rows()

    def typed(self, event: events.Key) -> bool:
        """While the text filter is open, letters go into it."""
        if not self.shown.typing:
            return False
        if event.key in ("enter", "escape", "ctrl+c"):
            text = self.shown.text if event.key == "enter" else ""
            self._show(self.current, typing=False, text=text)
        elif event.is_printable and event.character:
            self._show(self.current, text=self.shown.text + event.character)
        else:
            return False
        return True

    def action_type(self) -> None:
        """Type a text that the lines must have."""
        self._show(self.current, typing=True)

    def action_erase(self) -> None:
        """Take the last character back."""
        self._show(self.current, text=self.shown.text[:-1])

    def action_state(self) -> None:
        """Only sessions in another state."""
        names = list(STATES)
        after = names[(names.index(self.shown.state) + 1) % len(names)]
        self._show(self.current, state=after)

    def action_move(self, step: int) -> None:
        """Another session."""
        at = max(0, min(self.shown.at + step, len(self.shown.entries) - 1))
        self.shown = Shown(**{**vars(self.shown), "at": at})
        self.refresh_rows()

    def action_open(self) -> None:
        """Show the session: live, or as it ended."""
        if self.current:
            self.dismiss(Follow(self.current.paths.root))

    def action_replay(self) -> None:
        """Play the session back."""
        if self.current and self.current.live:
            self.app.tell(f"{self.current.name} is running: Enter opens it")
        elif self.current:
            self.dismiss(Follow(self.current.paths.root, replay=True))

    def action_mark(self) -> None:
        """Mark the session, or no longer."""
        if self.current:
            root = str(self.current.paths.root)
            self._show(self.current, marked=None if self.shown.marked == root else root)

    def action_compare(self) -> None:
        """Compare the session with the marked one, else with the baseline of its workload."""
        current = self.current
        if current is None:
            return
        base = self.shown.baselines.get(current.workload)
        wanted = [self.shown.marked, base.directory if base else None]
        others = {str(e.paths.root): e for e in self.entries if e is not current}
        other = next((others[root] for root in wanted if root in others), None)
        if other is None:
            self.app.tell("nothing to compare with: m marks a session, b makes a baseline")
        else:
            self._worker.compare(other.paths.root, current.paths.root)

    def on_sessions_compared(self, message: SessionsCompared) -> None:
        """Show how they differ."""
        if self.is_current:
            width = max(40, min(120, self.app.size.width - 6))
            rows = compared_rows(message.comparison, width)
            self.app.push_screen(Lines("compared", rows, "c"))

    def action_baseline(self) -> None:
        """Make the session the baseline of its workload, or no longer."""
        current = self.current
        if current is None:
            return
        base = self.shown.baselines.get(current.workload)
        if base and base.directory == str(current.paths.root):
            self._worker.unmark(current.workload)
        else:
            self._worker.mark(current.paths.root)

    def on_told(self, message: Told) -> None:
        """A line for the user."""
        message.stop()  # or the app would tell it once more
        self.app.tell(message.text, message.error)

    def action_help(self) -> None:
        """The keys."""
        self.app.push_screen(key_sheet(self, self.BINDINGS))

    def action_close(self) -> None:
        """Back to the board; a filter goes first."""
        if self.shown.text:
            self._show(self.current, text="")
        else:
            self.dismiss(None)
