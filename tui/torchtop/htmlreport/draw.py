"""Figures as SVG within the page; the one module that loads Matplotlib."""

from __future__ import annotations

import io
import logging
import os
import re
import tempfile
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchtop.htmlreport.colours import ink, to_variables
from torchtop.htmlreport.markup import Markup, plain, tag

if not os.access(Path("~").expanduser(), os.W_OK):  # its font cache wants a place
    os.environ.setdefault("MPLCONFIGDIR", str(Path(tempfile.gettempdir()) / f"mpl-{os.getuid()}"))
logging.getLogger("matplotlib").setLevel(logging.ERROR)

import matplotlib as mpl  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter  # noqa: E402

__all__ = ["Axes", "FuncFormatter", "NullFormatter", "Paint", "drawing", "legend", "time_axis"]

Paint = Callable[[Axes], None]
"""Draws one plot."""

_WIDTH = 400
"""Units a figure is wide: letters of 9 are then 8 pixels high on a phone and 12 in two columns."""

_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a $ in a name is a $
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.edgecolor": ink("rule"),
    "axes.labelcolor": ink("dim"),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": ink("rule"),
    "grid.linewidth": 0.6,
    "text.color": ink("text"),
    "xtick.color": ink("rule"),
    "ytick.color": ink("rule"),
    "xtick.labelcolor": ink("dim"),
    "ytick.labelcolor": ink("dim"),
    "lines.linewidth": 1.4,
    "lines.solid_joinstyle": "round",
}


def drawing(key: str, told: str, paint: Paint, height: int = 190) -> Markup:
    """A figure.

    Args:
        key: unique in the page, letters alone.
        told: what it shows, for those who cannot see it.
        paint: draws into its axes.
        height: in the units of which it is 400 wide.
    """
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that its font has not; the reader's may
        mpl.rcdefaults()  # not those of the reader's own matplotlibrc
        mpl.rcParams.update({**_STYLE, "svg.hashsalt": key})
        figure = Figure(figsize=(_WIDTH / 72, height / 72), layout="constrained")
        axes = figure.add_subplot()
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(_amount))
        paint(axes)
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return _within_a_page(file.getvalue(), key, told)


def _amount(value: float, _: object) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _within_a_page(svg: bytes, key: str, told: str) -> Markup:
    """A figure's file as an element: scales, has names of its own, and the page's colours."""
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ET.fromstring(svg)
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    _rename(root, key)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib.update({"class": "plot", "role": "img", "aria-label": plain(told, 400)})
    return Markup(to_variables(ET.tostring(root, encoding="unicode")))


def _rename(root: ET.Element, key: str) -> None:
    """Names of a figure's parts: those that are used get the figure's key before them."""
    used = {link[1:] for e in root.iter() if (link := e.get(_LINK, "")).startswith("#")}
    for element in root.iter():
        for value in element.attrib.values():
            used.update(re.findall(r"url\(#([^)]+)\)", value))
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in used:
            element.set("id", f"{key}-{name}")
        for attribute, value in element.attrib.items():
            if attribute == _LINK and value.startswith("#"):
                element.set(attribute, f"#{key}-{value[1:]}")
            elif "url(#" in value:
                element.set(attribute, value.replace("url(#", f"url(#{key}-"))


def time_axis(axes: Axes, length_s: float) -> None:
    """Seconds along the bottom, told in a unit that fits."""
    unit, scale = next(
        (unit, scale)
        for unit, scale, most in (("s", 1, 300), ("min", 60, 10_800), ("h", 3600, float("inf")))
        if length_s <= most
    )
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:g}"))
    if scale > 1:  # round numbers of the unit, and not of seconds
        step = _round_step(length_s / scale / 6) * scale
        axes.set_xticks([i * step for i in range(int(length_s / step) + 1)])
    axes.set_xlim(0, max(length_s, 1e-9))
    axes.set_xlabel(f"time since the start, {unit}")


def _round_step(wanted: float) -> float:
    steps = (0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 240)
    return next((step for step in steps if step >= wanted), wanted)


def legend(entries: list[tuple[str, str]]) -> Markup:
    """Names beside their colours, outside the drawing, where they can break into lines.

    Args:
        entries: (role, name).
    """
    swatch = (
        tag("li", tag("i", style=f"background:var(--{role})"), name) for role, name in entries
    )
    return tag("ul", *swatch, class_="legend")
