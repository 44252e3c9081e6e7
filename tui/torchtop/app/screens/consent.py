"""The question before the first start of a workload that a directory's file names."""

from __future__ import annotations

from torchtop.app.screens.ask import Answer, Ask
from torchtop.app.text import Row, broken, clean

_LIMIT = 100_000
"""Characters: above the longest command line that a configuration file can hold in practice."""

_ROOM = 9
"""Rows of the screen that are not for the command: frame, question, answers and spaces."""


class Consent(Ask):
    """Shows the full command and asks; starting is not the default.

    A command that does not fit on the screen cannot be judged here, so it cannot be agreed to.

    Args:
        name: the workload.
        command: what it runs.
    """

    def __init__(self, name: str, command: str) -> None:
        size = self.app.size
        name = clean(name, 60)
        self.cells = max(20, min(96, size.width - 6))
        self.command = broken(clean(command, _LIMIT), self.cells - 2)
        self.fits = len(self.command) + _ROOM <= size.height and len(command) < _LIMIT
        no = Answer("cancel", "n", "do not start it")
        yes = Answer("agree", "y", "agree, now and from now on, and start it")
        question = f"{name} is named by a file in this directory. It runs:"
        if not self.fits:
            question = (
                f"The command of {name} is too long for this screen to be read in full: make the "
                f"screen larger, or agree to it in a shell: torchtop run {name}"
            )
        answers = [no, yes, Answer("cancel", "esc", "back")] if self.fits else [no]
        super().__init__("a workload from torchtop.toml", question, answers)

    def on_resize(self) -> None:
        """A command that is no longer in full view cannot be agreed to either."""
        size = self.app.size
        if self.fits and (size.width - 6 < self.cells or len(self.command) + _ROOM > size.height):
            self.action_last()

    def wanted(self) -> tuple[int, int]:
        """As wide as the screen allows, for the command."""
        width, rows = super().wanted()
        return (self.cells, rows + len(self.command) + 1) if self.fits else (width, rows)

    def rows(self, width: int, height: int) -> list[Row]:
        """The question, the command in full, the answers."""
        rows = super().rows(width, height)
        if not self.fits:
            return rows
        first = rows.index(())
        command: list[Row] = [(("  ", ""), (line, "value")) for line in self.command]
        return [*rows[:first], (), *command, *rows[first:]]
