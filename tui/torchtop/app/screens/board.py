"""The board: the panes, placed by `arrange`, and the lines above and below it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from torchtop.app.keys import key_name
from torchtop.app.panes import bars, catalog, data, events, gpus, host, step, throughput, verdict
from torchtop.app.panes.arrange import Need, Place, arrange
from torchtop.app.panes.failure import failed
from torchtop.app.panes.logs import LogsPane
from torchtop.app.panes.pane import Pane, Rows
from torchtop.app.text import Row
from torchtop.app.view import View

_LINES = 2
"""Header and footer."""


class HeaderLine(Rows):
    """The top line."""

    DEFAULT_CSS = "HeaderLine { height: 1; }"

    def compute(self, width: int, height: int) -> list[Row]:
        """One row."""
        return [bars.header(self.view, width)]


class FooterLine(Rows):
    """The bottom line: the keys as they are bound now."""

    DEFAULT_CSS = "FooterLine { height: 1; }"

    def compute(self, width: int, height: int) -> list[Row]:
        """One row."""
        keys = {} if self.view.replay else {"workload": "1-9"}
        for key, active in self.screen.active_bindings.items():
            binding = active.binding
            shown = binding.show or binding.action.startswith(("sideways", "replay", "interval"))
            if shown and binding.group is not None and active.enabled:
                keys.setdefault(binding.description, binding.key_display or key_name(key))
        return [bars.footer(self.view, width, keys)]


class BoardLayout(Layout):
    """Puts each pane where the board's plan has it."""

    name = "torchtop-board"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        """Place the panes of the plan; the others are not shown."""
        assert isinstance(parent, Board)
        plan = parent.plan(size)
        return [
            WidgetPlacement(Region(*plan[child.id]), NULL_OFFSET, NULL_SPACING, child)
            for child in children
            if child.id in plan
        ]


class Board(Widget):
    """All panes."""

    DEFAULT_CSS = "Board { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__(id="board")
        self._arranger = BoardLayout()
        self.need = Need()
        self._placed: dict[str, Place] = {}
        self.zoomed: str | None = None
        self.view = View()
        self.logs = LogsPane()

    @property
    def layout(self) -> Layout:
        """The layout of our own."""
        return self._arranger

    def compose(self) -> ComposeResult:
        """The panes in the order in which Tab visits them."""
        size = self.app.size
        self._placed = self.plan(Size(size.width, size.height - _LINES))
        for pane in (
            Pane("verdict", "verdict", verdict.body, verdict.aside),
            Pane("gpus", "GPUs", gpus.body, gpus.aside, gpus.titles),
            Pane("step", "step", step.body, step.aside),
            Pane("throughput", "throughput", throughput.body, throughput.aside),
            Pane("data", "data", data.body, data.aside),
            Pane("catalog", "workloads", catalog.body, catalog.aside),
            self.logs,
            Pane("host", "host", host.body, host.aside),
            Pane("events", "events", events.body, events.aside),
        ):
            pane.display = pane.id in self._placed
            yield pane

    @property
    def panes(self) -> list[Pane]:
        """All panes, shown or not."""
        return list(self.query_children(Pane))

    def plan(self, size: Size) -> dict[str, Place]:
        """Where the panes go on a board of this size."""
        return arrange(size.width, size.height, self.need, self.zoomed)

    def show(self, view: View) -> None:
        """Draw another view, and arrange the panes anew if there is other to show."""
        self.view = view
        need = need_of(view)
        if need != self.need:
            self.need = need
            self.replan()
        for pane in self.panes:
            pane.show(view)

    def zoom(self, name: str | None) -> None:
        """One pane alone, or all of them again."""
        if name != self.zoomed:
            self.zoomed = name
            self.logs.wrapped = name == self.logs.id
            self.replan()

    def turn(self, step: int) -> None:
        """The next (1) or previous (-1) pane alone instead of the one that is."""
        normal = arrange(self.size.width, self.size.height, self.need)
        names = [
            pane.id
            for pane in self.panes
            if pane.id in normal or not (self.need.idle or pane.id == "catalog")
        ]
        at = names.index(self.zoomed) if self.zoomed in names else 0
        name = names[(at + step) % len(names)]
        self.zoom(name)
        self.screen.set_focus(self.query_one(f"#{name}", Pane))

    def replan(self) -> None:
        """Show the panes of the plan and hide the rest (they must not take the focus)."""
        placed = self.plan(self.size)
        if placed == self._placed:
            return
        self._placed = placed
        for pane in self.panes:
            pane.display = pane.id in placed
        self._clear_arrangement_cache()  # it knows the size and the panes, not the need
        self.refresh(layout=True)

    def on_resize(self) -> None:
        """Another size, another plan."""
        self.replan()


def need_of(view: View) -> Need:
    """What there is to show of a view."""
    snapshot = view.snapshot
    if snapshot is None:
        return Need()
    return Need(
        gpus=len(snapshot.gpus),
        ranks=len(snapshot.ranks),
        idle=snapshot.status == "idle",
        failed=failed(snapshot),
        stepped=bool((snapshot.analysis or {}).get("phases")),
        workloads=len(view.catalog),
    )
