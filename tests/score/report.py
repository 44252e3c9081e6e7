"""The tables of a score, for people, and the same for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from score.judge import Row

COLUMNS = (
    "fault",
    "",
    "expected",
    "told",
    "right after",
    "wrong before",
    "share told",
    "probe / trace",
    "phase gap",
    "bound",
    "real gain",
    "",
)


def as_text(rows: Sequence[Row]) -> str:
    """Both tables as Markdown, and a line that sums up."""
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    lines += [_line(_cells(row)) for row in rows]
    lines += ["", *_confusion(rows), "", _summary(rows)]
    lines += [f"{row.code}: {row.problem}" for row in rows if row.problem]
    return "\n".join(lines)


def as_json(rows: Sequence[Row], **facts: Any) -> dict[str, Any]:
    """The score as an object."""
    return {
        **facts,
        "faults": [row.as_json() for row in rows],
        "passed": sum(row.passed for row in rows),
        "confusion": {
            expected: dict(sorted(found.items())) for expected, found in _counts(rows).items()
        },
    }


def _cells(row: Row) -> list[str]:
    told = row.kind or "nothing"
    if row.rank is not None:
        told += f" rank {row.rank}"
    if row.phase is not None:
        told += f", {row.phase}"
    expected = " or ".join(row.expected) + (" (healthy)" if row.healthy else "")
    wrong = ", ".join(f"{kind} {seconds:.0f} s" for kind, seconds in row.wrong.items())
    trace = f"{_percent(row.probe_share)} / {_percent(row.trace_share)}"
    return [
        row.code,
        row.name,
        expected,
        told,
        _number(row.first_right_s, " s"),
        wrong or "-",
        _percent(row.share),
        trace,
        _number(row.phase_gap and 100 * row.phase_gap, " points"),
        _number(row.gain_bound, "x", 2),
        ("at least " if row.gain_is_least else "") + _number(row.gain, "x", 2),
        "ok" if row.passed else "WRONG" if row.kind and not row.right else "FAILED",
    ]


def _confusion(rows: Sequence[Row]) -> list[str]:
    """Expected against told, the verdict that stood at the end."""
    counts = _counts(rows)
    kinds = sorted({kind for found in counts.values() for kind in found})
    lines = [_line(["expected \\ told", *kinds]), _line(["---"] * (len(kinds) + 1))]
    for expected, found in counts.items():
        lines.append(_line([expected, *(str(found[kind] or ".") for kind in kinds)]))
    return lines


def _counts(rows: Sequence[Row]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        # A note of something that was expected beside health counts as health.
        told = row.expected[0] if row.right else row.kind or "nothing"
        counts.setdefault(row.expected[0], Counter())[told] += 1
    return counts


def _summary(rows: Sequence[Row]) -> str:
    compared = [row for row in rows if row.phase_gap is not None]
    bounded = [row for row in rows if row.gain_bound is not None and row.gain is not None]
    words = [f"{sum(row.passed for row in rows)} of {len(rows)} as they should be"]
    if compared:
        worst = max(compared, key=lambda row: row.phase_gap or 0.0)
        words.append(
            f"phases within {100 * (worst.phase_gap or 0):.1f} points of the traces "
            f"({worst.code}, {worst.phase_gap_in})"
        )
    if bounded:
        ratio, code = min(((r.gain_bound or 0) / (r.gain or 1), r.code) for r in bounded)
        words.append(f"bounds at least {ratio:.2f} of the real gain ({code})")
        full = [row for row in bounded if not row.gain_is_least]
        if full:
            ratio, code = max(((r.gain_bound or 0) / (r.gain or 1), r.code) for r in full)
            words.append(f"and at most {ratio:.2f} of it ({code})")
    return "; ".join(words)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _number(value: float | None, unit: str, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"
