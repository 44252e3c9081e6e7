"""A chart for each GPU, where the pane has the room: zoomed, or while no session is shown."""

from __future__ import annotations

from torchtop.app.charts.plot import Bucket, columns
from torchtop.app.format import known
from torchtop.app.text import Row, fit, pad
from torchtop.app.view import View
from torchtop.session.state import Gpu

LEAST_ROWS, MOST_ROWS = 2, 8
_LABEL = 9


def rows_each(height: int, gpus: int) -> int:
    """Rows of a chart for each GPU below its line; 0 where there is no room for charts."""
    each = (height - 1) // max(1, gpus) - 2  # its line, and a blank one after the chart
    return min(MOST_ROWS, each) if each >= LEAST_ROWS else 0


def chart(view: View, gpu: Gpu, width: int, rows: int) -> list[Row]:
    """SM activity, else utilization, a column a second; the scale ends at 100 %."""
    sm = gpu.series.get("sm_active", ())
    use_sm = any(value is not None for value in sm)
    series = sm if use_sm else gpu.series.get("util_percent", ())
    cells = width - _LABEL - 1
    shown = [known(value) for value in series[-cells:]]
    filled = [None if value is None else Bucket(value, value) for value in shown]
    drawn = columns(
        filled,
        cells,
        rows,
        1.0 if use_sm else 100.0,
        glyphs=view.glyphs,
        style="chart",
        peak_style="chart.peak",
    )
    labels = ["100 %", "SM active" if use_sm else "util"]
    return [
        fit([(pad(labels[i] if i < len(labels) else "", _LABEL), "faint"), (" ", ""), *row], width)
        for i, row in enumerate(drawn)
    ]
