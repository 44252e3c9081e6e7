"""How many steps a run has finished, by the ranks' own counts: the analyst may have been killed."""

from __future__ import annotations

from torchtop.session.folds import RankFold
from torchtop.session.paths import SessionPaths
from torchtop.session.tail import Tail

_LAST_BYTES = 64 << 10
"""Totals come twice a second: the last ones of a rank lie well within that."""

_PASSED_OVER = ("steps", "beat", "scalars")


def finished_steps(paths: SessionPaths) -> int | None:
    """The steps that all ranks have finished; None where none has ever trained."""
    ranks: dict[int, RankFold] = {}
    for file in sorted(paths.ranks.glob("*.jsonl")):
        records = Tail(file, last_bytes=_LAST_BYTES, without=_PASSED_OVER).poll()
        number = records[0].get("rank") if records else None
        if isinstance(number, int) and not file.name.endswith(".process.jsonl"):
            rank = ranks.setdefault(number, RankFold())
            for record in records:
                rank.apply(file.name, record)
    return min((rank.steps_done for rank in ranks.values()), default=None)
