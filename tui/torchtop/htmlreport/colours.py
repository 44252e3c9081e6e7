"""The report's colours by role, for light and dark, and how a drawing refers to them.

Matplotlib writes colours as numbers. Each role has a number of its own that occurs nowhere else; in
the finished drawing it is replaced by the page's variable.
"""

from __future__ import annotations

import re

from torchtop.session.records import PHASES

# Work is cool and waiting is warm, as on the screen.
_LIGHT = {
    "text": "#2b303a", "dim": "#6a7280", "back": "#fbfbfa", "card": "#ffffff", "rule": "#dcdcd6",
    "accent": "#2f5fc4", "good": "#3d7a2c", "warn": "#96620a", "bad": "#b8304c",
    "data": "#c98a1b", "forward": "#4b78d6", "backward": "#7d66d1", "exposed_comm": "#cc4d68",
    "pre_optimizer": "#3f8f86", "optimizer": "#5d9a4b", "other": "#9aa0a8",
    "line1": "#2f5fc4", "line2": "#b8304c", "line3": "#3d7a2c", "line4": "#96620a",
    "line5": "#6b50c8", "line6": "#0f7c86", "line7": "#a33d8f", "line8": "#5b6470",
}  # fmt: skip
_DARK = {
    "text": "#c8cedb", "dim": "#8d95a5", "back": "#14171d", "card": "#1b1f27", "rule": "#343b48",
    "accent": "#7aa2f7", "good": "#8fc77c", "warn": "#e0af68", "bad": "#f0718b",
    "data": "#d9a65c", "forward": "#6f97ea", "backward": "#9683e6", "exposed_comm": "#e0687f",
    "pre_optimizer": "#62aea5", "optimizer": "#83b972", "other": "#7b8494",
    "line1": "#7aa2f7", "line2": "#f0718b", "line3": "#8fc77c", "line4": "#e0af68",
    "line5": "#a795f5", "line6": "#5fc3cc", "line7": "#dd86cb", "line8": "#a3acbb",
}  # fmt: skip

_NUMBERS = {role: f"#0badc{place:x}" if place < 16 else f"#1badc{place - 16:x}"
            for place, role in enumerate(_LIGHT)}  # fmt: skip
_ROLES = {number: role for role, number in _NUMBERS.items()}
_NUMBER = re.compile("|".join(_ROLES))

assert set(PHASES) <= set(_LIGHT)
assert len(_ROLES) == len(_LIGHT) == len(_DARK)


def ink(role: str) -> str:
    """What to give to Matplotlib for a role."""
    return _NUMBERS[role]


def line(place: int) -> str:
    """The role of the nth of several lines; they begin anew after eight."""
    return f"line{place % 8 + 1}"


def to_variables(text: str) -> str:
    """A drawing's text with the page's variables in place of the roles' numbers."""
    return _NUMBER.sub(lambda found: f"var(--{_ROLES[found[0]]})", text)


def stylesheet() -> str:
    """The variables: light, dark where the reader prefers it, and light on paper."""
    light, dark = (
        ";".join(f"--{role}:{colour}" for role, colour in colours.items())
        for colours in (_LIGHT, _DARK)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    )
