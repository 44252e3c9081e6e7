"""Colours: two themes of our own, and the styles that panes name.

Work is cool (blue, violet, green), waiting is warm (amber, red): a stacked bar tells good from bad
before it is read. Letters and words say the same, so colour is never needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rich.style import Style
from textual.theme import Theme

DARK = Theme(
    name="torchtop",
    primary="#7aa2f7",
    secondary="#9d8cf0",
    accent="#7aa2f7",
    success="#8fc77c",
    warning="#e0af68",
    error="#f0718b",
    foreground="#c8cedb",
    background="#14171d",
    surface="#1b1f27",
    panel="#242a34",
    dark=True,
)
LIGHT = Theme(
    name="torchtop-light",
    primary="#2f5fc4",
    secondary="#6b50c8",
    accent="#2f5fc4",
    success="#3d7a2c",
    warning="#96620a",
    error="#b8304c",
    foreground="#2b303a",
    background="#f7f7f5",
    surface="#ecece8",
    panel="#dfdfda",
    dark=False,
)
THEMES = (DARK, LIGHT)

_ANSI: dict[str, str] = {
    "": "",
    "dim": "",
    "faint": "bright_black",
    "rule": "bright_black",
    "track": "bright_black",
    "title": "bold",
    "focus": "bold reverse",
    "value": "bold",
    "big": "bold",
    "accent": "cyan",
    "key": "bold cyan",
    "ok": "green",
    "note": "cyan",
    "warn": "yellow",
    "critical": "bold red",
    "unknown": "magenta",
    "bar": "blue",
    "bar.high": "yellow",
    "bar.full": "red",
    "spark": "blue",
    "chart": "blue",
    "chart.peak": "bright_black",
    "chart.good": "green",
    "select": "reverse",
    "phase.data": "black on yellow",
    "phase.forward": "black on cyan",
    "phase.backward": "white on blue",
    "phase.exposed_comm": "white on red",
    "phase.pre_optimizer": "black on magenta",
    "phase.optimizer": "black on green",
    "phase.other": "black on white",
    "phase.unknown": "white on bright_black",
}


class Palette:
    """Style names to Rich styles.

    Args:
        styles: a Rich style for each name.
    """

    def __init__(self, styles: Mapping[str, Style]) -> None:
        self._styles = dict(styles)
        self._base = self._styles[""]

    def __getitem__(self, name: str) -> Style:
        """The style of a name; ``chip.X`` is X as a filled label, unknown names are plain text."""
        style = self._styles.get(name)
        if style is None:
            style = self._derive(name)
            self._styles[name] = style
        return style

    def _derive(self, name: str) -> Style:
        if name.endswith(".on_peak"):
            return self[name.removesuffix(".on_peak")]
        kind, _, rest = name.partition(".")
        if kind == "chip":
            return self[rest] + Style(reverse=True, bold=True)
        if kind == "ink":  # the colour of a phase as text instead of as a surface
            surface = self["phase." + rest]
            return Style(color=surface.bgcolor, bgcolor=self._base.bgcolor)
        return self._base


def ansi_palette() -> Palette:
    """The terminal's own sixteen colours on its own background."""
    return Palette({name: Style.parse(text or "none") for name, text in _ANSI.items()})


@lru_cache(maxsize=256)
def _mix(one: str, two: str, share: float) -> str:
    """A colour between two, `share` of the way from the first."""
    a = [int(one[i : i + 2], 16) for i in (1, 3, 5)]
    b = [int(two[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in zip(a, b, strict=True))


def theme_palette(theme: Theme) -> Palette:
    """The styles of a theme, on its background."""
    back = theme.background or ("#14171d" if theme.dark else "#f7f7f5")
    text = theme.foreground or ("#c8cedb" if theme.dark else "#2b303a")
    accent = theme.accent or theme.primary
    second = theme.secondary or accent
    good, warn = theme.success or "#8fc77c", theme.warning or "#e0af68"
    bad = theme.error or "#f0718b"
    dim, faint = _mix(text, back, 0.3), _mix(text, back, 0.5)
    rule, track = _mix(text, back, 0.8), _mix(text, back, 0.74)
    chart, peak = _mix(accent, back, 0.42), _mix(text, back, 0.82)
    colours = {
        "": text,
        "dim": dim,
        "faint": faint,
        "rule": rule,
        "track": track,
        "title": f"bold {text}",
        "value": f"bold {text}",
        "big": f"bold {text}",
        "accent": accent,
        "key": f"bold {accent}",
        "ok": good,
        "note": accent,
        "warn": warn,
        "critical": f"bold {bad}",
        "unknown": second,
        "bar": _mix(accent, back, 0.15),
        "bar.high": warn,
        "bar.full": bad,
        "spark": _mix(accent, back, 0.25),
        "chart": chart,
        "chart.peak": peak,
        "chart.good": _mix(good, back, 0.45),
    }
    styles = {name: Style.parse(f"{colour} on {back}") for name, colour in colours.items()}
    styles["focus"] = Style.parse(f"bold {back} on {accent}")
    styles["select"] = Style.parse(f"{text} on {_mix(accent, back, 0.7)}")
    styles["chart.on_peak"] = Style.parse(f"{chart} on {peak}")
    styles.update(_surfaces(theme, back))
    return Palette(styles)


def _surfaces(theme: Theme, back: str) -> dict[str, Style]:
    """The phases of a stacked bar: dark letters on a quiet colour."""
    text, accent = theme.foreground or "#c8cedb", theme.accent or theme.primary
    good = theme.success or "#8fc77c"
    colours = {
        "data": theme.warning or "#e0af68",
        "forward": accent,
        "backward": theme.secondary or accent,
        "exposed_comm": theme.error or "#f0718b",
        "pre_optimizer": _mix(good, accent, 0.5),
        "optimizer": good,
        "other": _mix(text, back, 0.5),
        "unknown": _mix(text, back, 0.7),
    }
    return {
        f"phase.{name}": Style.parse(f"bold {back} on {_mix(colour, back, 0.16)}")
        for name, colour in colours.items()
    }
