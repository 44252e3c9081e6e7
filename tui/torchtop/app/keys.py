"""The keys: one table from which bindings, footer, help and palette are made."""

from __future__ import annotations

from textual.binding import Binding

SESSION = Binding.Group("session")
DISPLAY = Binding.Group("display")
PROGRAM = Binding.Group("program")


def _bind(
    key: str,
    action: str,
    name: str,
    tooltip: str,
    group: Binding.Group,
    *,
    shown: bool = True,
    key_display: str | None = None,
) -> Binding:
    """A binding whose id is its action's name, for remapping."""
    ident = action.replace("(", "-").replace(")", "").replace("'", "").rstrip("-")
    return Binding(
        key,
        action,
        name,
        show=shown,
        key_display=key_display,
        tooltip=tooltip,
        id=f"torchtop.{ident}",
        group=group,
    )


WORKLOADS = [
    _bind(
        str(digit),
        f"workload({digit})",
        f"workload {digit}",
        f"start workload {digit}; asks first when a run is live",
        SESSION,
        shown=False,
    )
    for digit in range(1, 10)
]

BINDINGS = [
    *WORKLOADS,
    _bind("w", "pick", "pick", "pick a workload from the list", SESSION),
    _bind("s", "start", "start", "start the workload that is shown again, or pick one", SESSION),
    _bind("x", "stop", "stop", "stop the run; asks first, and offers to kill it", SESSION),
    _bind("r", "restart", "restart", "stop the run and start it again, as it is", SESSION),
    _bind("S", "save", "save", "save the session's summary", SESSION),
    _bind("o", "options", "options", "the options in force", SESSION),
    _bind(
        "[",
        "session(-1)",
        "older session",
        "show the session before this one",
        SESSION,
        shown=False,
    ),
    _bind(
        "]", "session(1)", "newer session", "show the session after this one", SESSION, shown=False
    ),
    _bind("l", "pane('logs')", "logs", "the logs: in view, then alone, then back", DISPLAY),
    _bind("h", "pane('host')", "host", "the host: in view, then alone, then back", DISPLAY),
    _bind("e", "pane('events')", "events", "the events: in view, then alone, then back", DISPLAY),
    _bind("z", "zoom", "zoom", "the pane in focus alone, and back", DISPLAY),
    _bind("space", "pause", "pause", "hold the display still; the run goes on", DISPLAY),
    _bind("tab", "turn(1)", "next pane", "move the focus on", DISPLAY, shown=False),
    _bind("shift+tab", "turn(-1)", "previous pane", "move the focus back", DISPLAY, shown=False),
    _bind("/", "filter", "filter", "show only log lines with a text in them", DISPLAY, shown=False),
    _bind(
        "+,=",
        "interval(-1)",
        "faster",
        "look at the session more often",
        DISPLAY,
        shown=False,
        key_display="+",
    ),
    _bind("-", "interval(1)", "slower", "look at the session less often", DISPLAY, shown=False),
    _bind(
        "left", "sideways(-1)", "back", "replay: 10 s back; logs: rank before", DISPLAY, shown=False
    ),
    _bind("right", "sideways(1)", "on", "replay: 10 s on; logs: next rank", DISPLAY, shown=False),
    _bind(".", "replay_end", "to the end", "replay: go to the end", DISPLAY, shown=False),
    _bind("up", "scroll(1)", "up", "logs: a line up", DISPLAY, shown=False),
    _bind("down", "scroll(-1)", "down", "logs: a line down", DISPLAY, shown=False),
    _bind("pageup", "scroll(20)", "page up", "logs: a page up", DISPLAY, shown=False),
    _bind("pagedown", "scroll(-20)", "page down", "logs: a page down", DISPLAY, shown=False),
    _bind("home", "scroll(100000)", "first line", "logs: to the first line", DISPLAY, shown=False),
    _bind(
        "end",
        "scroll(-100000)",
        "follow",
        "logs: to the last line, and follow",
        DISPLAY,
        shown=False,
    ),
    _bind("escape", "back", "back", "all panes again", DISPLAY, shown=False),
    _bind("question_mark", "help", "help", "this page", PROGRAM, key_display="?"),
    _bind(
        "ctrl+p", "app.command_palette", "palette", "find a command by name", PROGRAM, shown=False
    ),
    _bind("q", "quit", "quit", "leave; with a live run asks what becomes of it", PROGRAM),
    _bind("ctrl+c", "quit", "quit", "the same", PROGRAM, shown=False),
]

_DISPLAYS = {
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "slash": "/",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "full_stop": ".",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "tab": "Tab",
    "shift+tab": "Shift+Tab",
    "left": "Left",
    "right": "Right",
    "up": "Up",
    "down": "Down",
    "home": "Home",
    "end": "End",
}


def key_name(key: str) -> str:
    """A key as it is printed on the keyboard."""
    return _DISPLAYS.get(key, key)
