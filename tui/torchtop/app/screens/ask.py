"""A question with a few answers, each a key away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from torchtop.app.controller import LeftBehind
from torchtop.app.keys import sheet_key
from torchtop.app.panes.lost import named
from torchtop.app.screens.sheet import Sheet
from torchtop.app.text import Row, Span, row_width, wrap


@dataclass(frozen=True)
class Answer:
    """One answer: its value, its key, and what it does in words."""

    value: str
    key: str
    text: str


class Ask(Sheet[str]):
    """Asks; the first answer is taken by Enter, Esc takes the last.

    Args:
        heading: the box's title.
        question: a sentence or two.
        answers: the first is the default, the last changes nothing.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        sheet_key("enter", "take", "take"),
        sheet_key("escape,ctrl+c", "last", "cancel"),
        sheet_key("up,left,shift+tab", "move(-1)", "up"),
        sheet_key("down,right,tab", "move(1)", "down"),
    ]

    def __init__(self, heading: str, question: str, answers: Sequence[Answer]) -> None:
        super().__init__()
        self.heading = heading
        self.question, self.answers = question, tuple(answers)
        self.at = 0

    def wanted(self) -> tuple[int, int]:
        """Wide enough for the answers."""
        width = max(len(answer.text) for answer in self.answers) + 12
        width = max(46, min(70, max(width, len(self.question))))
        return width, len(wrap(self.question, width, 4)) + len(self.answers) + 2

    def rows(self, width: int, height: int) -> list[Row]:
        """The question, then the answers."""
        rows: list[Row] = [((line, ""),) for line in wrap(self.question, width, 4)]
        rows.append(())
        for index, answer in enumerate(self.answers):
            chosen = index == self.at
            mark = "▸ " if chosen else "  "
            spans: list[Span] = [
                (mark, "accent"),
                (f"{answer.key:<6}", "key"),
                (answer.text, "value" if chosen else "dim"),
            ]
            rows.append((*spans, (" " * max(0, width - row_width(spans)), "")))
        return rows

    def typed(self, event: events.Key) -> bool:
        """An answer's own key takes it."""
        for answer in self.answers:
            if answer.key in (event.key, event.character):
                self.dismiss(answer.value)
                return True
        return False

    def action_take(self) -> None:
        """Take the marked answer."""
        self.dismiss(self.answers[self.at].value)

    def action_last(self) -> None:
        """Change nothing."""
        self.dismiss(self.answers[-1].value)

    def action_move(self, step: int) -> None:
        """Mark another answer."""
        self.at = (self.at + step) % len(self.answers)
        self.refresh_rows()


def ask_stop(label: str, stopping: bool) -> Ask:
    """Asks whether to stop a run."""
    if stopping:
        return Ask(
            "stop",
            f"{label} is stopping already.",
            [
                Answer("wait", "w", "let it end in its own time"),
                Answer("kill", "k", "kill it at once"),
                Answer("cancel", "esc", "cancel"),
            ],
        )
    return Ask(
        "stop",
        f"Stop {label}?",
        [
            Answer("stop", "x", "stop it"),
            Answer("kill", "k", "kill it at once, without saving"),
            Answer("cancel", "esc", "let it run"),
        ],
    )


def ask_sweep(label: str, left: tuple[LeftBehind, ...]) -> Ask:
    """Asks whether to end what lost sessions have left."""
    them = "it" if len(left) == 1 else "them"
    return Ask(
        "leftovers",
        f"{label} left {named(left)}, without a supervisor. End {them}?",
        [
            Answer("sweep", "x", f"end {them}: SIGTERM, after 2 s SIGKILL"),
            Answer("cancel", "esc", f"let {them} run"),
        ],
    )


def ask_switch(label: str, name: str) -> Ask:
    """Asks whether to stop a run and start another."""
    verb = "start it again" if label == name else f"start {name}"
    return Ask(
        "switch",
        f"{label} is running. Stop it and {verb}?",
        [
            Answer("switch", "y", f"stop it, then {verb}"),
            Answer("cancel", "esc", "let it run"),
        ],
    )


def ask_replay(name: str) -> Ask:
    """Asks whether to leave a replay for a new run."""
    return Ask(
        "replay",
        f"This is a recording. Leave it and start {name}?",
        [Answer("start", "y", f"start {name}"), Answer("cancel", "esc", "stay")],
    )


def ask_quit(label: str) -> Ask:
    """Asks what becomes of a live run."""
    return Ask(
        "quit",
        f"{label} is running.",
        [
            Answer("detach", "d", "detach: leave, and let it run"),
            Answer("stop", "x", "stop it, then leave"),
            Answer("cancel", "esc", "stay"),
        ],
    )
