"""The failure card: which rank was first, why, what to try, and how its traceback ends."""

from __future__ import annotations

from torchtop.app.format import count, duration, known, size
from torchtop.app.text import Row, Span, broken, clean, fit, row_width, wrap
from torchtop.session.failure import IN_ORDER, Failure, failure_of
from torchtop.session.state import Snapshot

__all__ = ["IN_ORDER", "card", "failed", "story"]

_CHIP: Span = (" ✗ FAILED ", "chip.critical")
_ROOMY = 10
"""Rows from which on all advice is told, and the headline may take more of them."""


def failed(snapshot: Snapshot) -> bool:
    """Whether the session ended otherwise than it was meant to."""
    cause = (snapshot.exit or {}).get("cause")
    return snapshot.status == "failed" or (isinstance(cause, str) and cause not in IN_ORDER)


def _failure(snapshot: Snapshot) -> Failure:
    return failure_of(snapshot.exit or {}, snapshot.meta)


def _moment(snapshot: Snapshot, failure: Failure) -> str:
    """Where in the script, and how far into the run."""
    steps = (snapshot.analysis or {}).get("steps")
    after = f"after {duration(snapshot.elapsed_s)}" + (
        f" and {count(steps)} steps" if steps else ""
    )
    return f"at {clean(failure.where, 200)}, {after}" if failure.where else after


def _memory(snapshot: Snapshot) -> str:
    """The GPU memory of a rank that ran out of it, as it was last seen; empty for others."""
    end = snapshot.exit or {}
    if end.get("cause") != "out_of_memory":
        return ""
    of = next((rank.memory for rank in snapshot.ranks if rank.rank == end.get("rank")), {})
    names = ("allocated", "reserved", "peak")
    told = [f"{size(of.get(f'{n}_bytes'))} {n}" for n in names if known(of.get(f"{n}_bytes"))]
    return f"GPU memory, last seen: {', '.join(told)}" if told else ""


def card(snapshot: Snapshot, width: int, height: int) -> list[Row]:
    """The card's lines, the most important first; below them as much as there is room for."""
    failure = _failure(snapshot)
    rows = _headline(failure, width, 4 if height >= _ROOMY else 2)
    facts = filter(None, [_moment(snapshot, failure), _memory(snapshot)])
    rows += [fit([(f" · {fact}", "dim")], width) for fact in facts]
    advice = failure.advice if height >= _ROOMY else failure.advice[:1]
    most = 2 if height >= _ROOMY else 1
    for told in advice:
        signs = [" → ", "   "]
        for sign, line in zip(signs, wrap(clean(told, 400), max(1, width - 3), most), strict=False):
            rows.append(fit([(sign, "accent"), (line, "")], width))
    room = height - len(rows)
    if room > 0:
        rows += [fit([("   " + clean(line, 600), "dim")], width) for line in _tail(failure)[-room:]]
    return rows[:height]


def _tail(failure: Failure) -> list[str]:
    """The lines of traceback or log that say something that the headline does not."""
    lines = failure.traceback or failure.log
    return [line for line in lines if line.strip(" ^~") and line.strip() not in failure.headline]


def _headline(failure: Failure, width: int, most: int) -> list[Row]:
    """The sentence beside its chip, in at most so many rows."""
    label: list[Span] = [_CHIP, ("  ", "")]
    indent = row_width(label)
    lines = wrap(clean(failure.headline, 600), max(20, width - indent), most) or [""]
    rows = [fit([*label, (lines[0], "value")], width)]
    return rows + [fit([(" " * indent, ""), (line, "value")], width) for line in lines[1:]]


def story(snapshot: Snapshot, width: int) -> list[Row]:
    """All of it, for a sheet that scrolls.

    Args:
        snapshot: of a session that has failed.
        width: cells; longer lines go on in further rows.
    """
    failure = _failure(snapshot)
    rows: list[Row] = [
        ((line, "value"),) for line in wrap(clean(failure.headline, 2000), width, 20)
    ]
    facts = filter(None, [_moment(snapshot, failure), _memory(snapshot)])
    rows += [((fact, "dim"),) for fact in facts]
    _part(rows, "what to try", [line for told in failure.advice for line in _item(told, width)])
    _part(rows, "traceback", _broken(failure.traceback, width))
    rank = (snapshot.exit or {}).get("rank")
    whose = f"rank {rank}'s" if isinstance(rank, int) else "its"
    _part(rows, f"the last lines of {whose} log", _broken(failure.log, width))
    return rows


def _item(text: str, width: int) -> list[str]:
    lines = wrap(clean(text, 600), max(20, width - 2), 6)
    return [("→ " if at == 0 else "  ") + line for at, line in enumerate(lines)]


def _broken(lines: tuple[str, ...], width: int) -> list[str]:
    return [part for line in lines for part in broken(clean(line, 2000), width)]


def _part(rows: list[Row], title: str, lines: list[str]) -> None:
    if lines:
        rows += [(), ((title, "title"),), *(((line, ""),) for line in lines)]
