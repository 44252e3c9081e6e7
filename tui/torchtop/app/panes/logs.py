"""The logs: the ends of the ranks' output, by rank, with a filter."""

from __future__ import annotations

from collections.abc import Sequence

from torchtop.app.logs import LogLine, LogPage
from torchtop.app.panes.pane import Pane
from torchtop.app.text import Row, Span, clean, fit, pad
from torchtop.app.view import View


class LogsPane(Pane):
    """The logs pane; it alone keeps a place in its text, a rank and a filter."""

    def __init__(self) -> None:
        super().__init__("logs", "logs", self._lines, self._about)
        self.rank: int | None = None
        self.filter_text = ""
        self.back = 0
        """Lines between the shown end and the last line; 0 follows."""
        self._seen = 0

    def show(self, view: View) -> None:
        """Keep the place in the text when lines come in below it."""
        if self.back and view.logs.total > self._seen:
            self.back += view.logs.total - self._seen
        self._seen = view.logs.total
        super().show(view)

    def turn_rank(self, step: int) -> None:
        """Show the next (1) or previous (-1) rank; all of them lie between last and first."""
        choices: list[int | None] = [None, *self.view.logs.ranks]
        at = choices.index(self.rank) if self.rank in choices else 0
        self.rank = choices[(at + step) % len(choices)]
        self.back = 0
        self.redraw()

    def scroll_lines(self, lines: int) -> None:
        """Move up (positive) or down in the text."""
        self.back = max(0, min(self.back + lines, max(0, len(self._matching()) - 1)))
        self.redraw()

    def set_filter(self, text: str) -> None:
        """Show only lines with this text in them (case does not matter)."""
        self.filter_text, self.back = text, 0
        self.redraw()

    def _matching(self) -> Sequence[LogLine]:
        return matching(self.view.logs, self.rank, self.filter_text)

    def _lines(self, view: View, width: int, height: int) -> list[Row]:
        return body(self._matching(), self.rank is None, self.back, width, height)

    def _about(self, view: View, width: int) -> list[Span]:
        spans: list[Span] = []
        if self.filter_text:
            spans += [("/", "dim"), (clean(self.filter_text, 40), "value"), ("  ", "")]
        if self.back:
            spans += [(f"{self.back} lines back", "note"), ("  ", "")]
        if view.logs.ranks:
            spans += [("‹ ", "dim"), (_which(self.rank), ""), (" ›", "dim")]
        return spans


def _which(rank: int | None) -> str:
    return "all ranks" if rank is None else f"rank {rank}"


def matching(page: LogPage, rank: int | None, text: str) -> Sequence[LogLine]:
    """The lines of a rank (None: of all) that hold a text."""
    if rank is None and not text:
        return page.lines
    wanted = text.lower()
    return [
        line
        for line in page.lines
        if (rank is None or line.rank == rank) and wanted in line.text.lower()
    ]


def body(
    lines: Sequence[LogLine], with_rank: bool, back: int, width: int, height: int
) -> list[Row]:
    """The last lines, `back` lines before the end; standard error is marked."""
    if not lines:
        return [fit([("no output yet", "dim")], width)]
    end = max(1, len(lines) - back)
    rows = []
    for line in lines[max(0, end - height) : end]:
        mark = "!" if line.stream == "stderr" else " "
        label: list[Span] = [(pad(f"r{line.rank}", 3), "accent")] if with_rank else []
        label.append((mark + " ", "warn" if mark == "!" else ""))
        rows.append(fit([*label, (line.text, "")], width))
    return rows
