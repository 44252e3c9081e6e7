"""The keys: one table from which bindings, footer, help and palette are made."""

from __future__ import annotations

import re
from dataclasses import replace

from textual.binding import Binding

SESSION = Binding.Group("session")
DISPLAY = Binding.Group("display")
PROGRAM = Binding.Group("program")
SHEET = Binding.Group("in a box")


def _bind(
    key: str,
    action: str,
    name: str,
    tooltip: str,
    group: Binding.Group,
    *,
    shown: bool = False,
    key_display: str | None = None,
) -> Binding:
    """A binding; its id, by which it can be remapped, is made from its action."""
    return Binding(
        key,
        action,
        name,
        show=shown,
        key_display=key_display,
        tooltip=tooltip,
        id="torchtop." + re.sub(r"[^a-z0-9]+", "-", action.replace("-", "minus-")).strip("-"),
        group=group,
    )


def key_of(place: str, key: str, action: str, tooltip: str, group: Binding.Group) -> Binding:
    """A binding of another place than the board, whose name its id has as well."""
    bound = _bind(key, action, tooltip, tooltip, group)
    return replace(bound, id=(bound.id or "").replace("torchtop.", f"torchtop.{place}."))


def sheet_key(key: str, action: str, tooltip: str) -> Binding:
    """A binding of a box over the board."""
    return key_of("box", key, action, tooltip, SHEET)


_WORKLOAD = "start a workload; asks first when a run is live"
_TURN = "the next, the previous pane"
_SIDEWAYS = "logs: another rank; replay: 10 s back or on"
_FAR = "replay: 10 minutes back or on"
_SCROLL = "logs: move through the text; End follows again"


def _pane(name: str) -> str:
    """What the key of a pane does when it is pressed once, twice and three times."""
    return f"{name} in view, then alone, then back"


PALETTE = _bind("ctrl+p", "command_palette", "palette", "find a command by name", PROGRAM)
"""Belongs to the app: Textual adds one of its own where it is missing."""

BINDINGS = [
    *(
        _bind(str(digit), f"workload({digit})", f"workload {digit}", _WORKLOAD, SESSION)
        for digit in range(1, 10)
    ),
    _bind("w", "pick", "pick", "pick a workload from the list", SESSION, shown=True),
    _bind("s", "start", "start", "start what is shown again, or pick", SESSION, shown=True),
    _bind("x", "stop", "stop", "stop the run; asks first, and offers to kill", SESSION, shown=True),
    _bind("r", "restart", "restart", "stop the run and start it again", SESSION, shown=True),
    _bind("S", "save", "save", "save the session's summary", SESSION, shown=True),
    _bind("o", "options", "options", "the options in force", SESSION, shown=True),
    _bind("t", "stacks", "stacks", "where each rank's Python code stands", SESSION, shown=True),
    _bind("i", "inspect", "inspect", "which lines wait for the GPU", SESSION, shown=True),
    _bind("f", "failure", "failure", "why the run failed, all of it", SESSION, shown=True),
    _bind("b", "browse", "sessions", "all sessions: open, compare, baseline", SESSION, shown=True),
    _bind("[", "session(-1)", "older session", "show the session before this one", SESSION),
    _bind("]", "session(1)", "newer session", "show the session after this one", SESSION),
    _bind("l", "pane('logs')", "logs", _pane("logs"), DISPLAY, shown=True),
    _bind("h", "pane('host')", "host", _pane("host"), DISPLAY, shown=True),
    _bind("e", "pane('events')", "events", _pane("events"), DISPLAY, shown=True),
    _bind("z", "zoom", "zoom", "the pane in focus alone, then all again", DISPLAY, shown=True),
    _bind("space", "pause", "pause", "hold the display; the run goes on", DISPLAY, shown=True),
    _bind("tab", "turn(1)", "next pane", _TURN, DISPLAY),
    _bind("shift+tab", "turn(-1)", "previous pane", _TURN, DISPLAY),
    _bind("/", "filter", "filter", "logs: only lines with a text in them", DISPLAY),
    _bind("+", "interval(-1)", "faster", "look more often; replay: faster", DISPLAY),
    _bind("=", "interval(-1)", "faster", "", DISPLAY),
    _bind("-", "interval(1)", "slower", "look less often; replay: slower", DISPLAY),
    _bind("left", "sideways(-1)", "10 s back", _SIDEWAYS, DISPLAY),
    _bind("right", "sideways(1)", "10 s on", _SIDEWAYS, DISPLAY),
    _bind("shift+left", "sideways(-60)", "10 min back", _FAR, DISPLAY),
    _bind("shift+right", "sideways(60)", "10 min on", _FAR, DISPLAY),
    _bind("comma", "replay_start", "start of it", "replay: go to the start", DISPLAY),
    _bind(".", "replay_end", "end", "replay: go to the end", DISPLAY),
    _bind("up", "scroll(1)", "up", _SCROLL, DISPLAY),
    _bind("down", "scroll(-1)", "down", _SCROLL, DISPLAY),
    _bind("pageup", "scroll(20)", "page up", _SCROLL, DISPLAY),
    _bind("pagedown", "scroll(-20)", "page down", _SCROLL, DISPLAY),
    _bind("home", "scroll(100000)", "first line", _SCROLL, DISPLAY),
    _bind("end", "scroll(-100000)", "follow", _SCROLL, DISPLAY),
    _bind("escape", "back", "back", "all panes again", DISPLAY),
    _bind("question_mark", "help", "help", "all keys", PROGRAM, shown=True, key_display="?"),
    PALETTE,
    _bind("ctrl+l", "redraw", "redraw", "paint everything again", PROGRAM),
    _bind("q", "quit", "quit", "leave; asks what becomes of a live run", PROGRAM, shown=True),
    _bind("ctrl+c", "quit", "quit", "leave; asks what becomes of a live run", PROGRAM),
]
"""In the order in which help shows them; those with one tooltip share a line there."""

_DISPLAYS = {
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "slash": "/",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "full_stop": ".",
    "comma": ",",
    "shift+left": "Shift+Left",
    "shift+right": "Shift+Right",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "enter": "Enter",
    "backspace": "Backspace",
    "space": "Space",
    "ctrl+c": "Ctrl+C",
    "ctrl+l": "Ctrl+L",
    "ctrl+p": "Ctrl+P",
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
