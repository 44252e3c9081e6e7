"""The logs: the ends of the ranks' output, by rank, with a filter."""

from __future__ import annotations

from collections.abc import Sequence

from torchtop.app.logs import COMMAND, LogLine, LogPage
from torchtop.app.panes.pane import Pane
from torchtop.app.text import Row, Span, broken, clean, fit, pad, row_width, wrap
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
        self.wrapped = False
        """Whether long lines go on in further rows: set while the pane is alone."""

    def show(self, view: View) -> None:
        """Keep the place in the text when lines come in below it."""
        if self.back and view.logs.total > self._seen:
            self.back += view.logs.total - self._seen
        elif view.logs.total < self._seen:
            self.back = 0
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
        inner, height = max(1, self.size.width - 2), max(1, self.size.height - 1)
        most = most_back(self._matching(), self.rank is None, inner, height, self.wrapped)
        self.back = max(0, min(self.back + lines, most))
        self.redraw()

    def set_filter(self, text: str) -> None:
        """Show only lines with this text in them (case does not matter)."""
        self.filter_text, self.back = text, 0
        self.redraw()

    def _matching(self) -> Sequence[LogLine]:
        return matching(self.view.logs, self.rank, self.filter_text)

    def _lines(self, view: View, width: int, height: int) -> list[Row]:
        lines = self._matching()
        if not lines:
            told = nothing(view.logs, self.rank, self.filter_text)
            return [fit([(text, "dim")], width) for text in wrap(told, width, max(1, height))]
        return body(lines, self.rank is None, self.back, width, height, self.wrapped)

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
    if rank is None:
        return "all ranks"
    return "the command" if rank == COMMAND else f"rank {rank}"


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
    lines: Sequence[LogLine],
    with_rank: bool,
    back: int,
    width: int,
    height: int,
    wrapped: bool = False,
) -> list[Row]:
    """The last lines, `back` lines before the end; standard error is marked.

    Args:
        lines: those that are chosen.
        with_rank: name each line's rank.
        back: lines between the shown end and the last one.
        width: cells.
        height: rows.
        wrapped: long lines go on in further rows instead of being cut.
    """
    rows: list[Row] = []
    for line in reversed(lines[: max(0, len(lines) - back)]):
        if len(rows) >= height:
            break
        rows[:0] = _line(line, with_rank, width, wrapped)
    return rows[max(0, len(rows) - height) :]


def most_back(
    lines: Sequence[LogLine], with_rank: bool, width: int, height: int, wrapped: bool
) -> int:
    """How many lines the end can be moved back before the first line stands at the top."""
    taken = 0
    for at, line in enumerate(lines, 1):
        taken += len(_line(line, with_rank, width, wrapped))
        if taken >= height:
            return len(lines) - at
    return 0


def _line(line: LogLine, with_rank: bool, width: int, wrapped: bool) -> list[Row]:
    """One line of a log in one row, or in as many as it takes."""
    mark = "!" if line.stream == "stderr" else " "
    who = "cmd" if line.rank == COMMAND else pad(f"r{line.rank}", 3)
    label: list[Span] = [(who, "accent")] if with_rank else []
    label.append((mark + " ", "warn" if mark == "!" else ""))
    indent = row_width(label)
    if not wrapped:
        return [fit([*label, (line.text, "")], width)]
    first, *rest = broken(line.text, max(1, width - indent))
    return [
        fit([*label, (first, "")], width),
        *(fit([(" " * indent, ""), (text, "")], width) for text in rest),
    ]


def nothing(page: LogPage, rank: int | None, text: str) -> str:
    """Why no line is shown."""
    if page.withheld:
        return "log lines carry no time: they are shown at the end of the replay (key: .)"
    if not page.lines:
        return "no output yet"
    of = "" if rank is None else f" of {_which(rank)}"
    return f"no line{of} contains {clean(text, 60)}" if text else f"no output{of} yet"
