"""How many steps a run has finished, by the ranks' own counts: the analyst may have been killed."""

from __future__ import annotations

from pathlib import Path

from torchtop.session.folds import fold_ranks
from torchtop.session.paths import SessionPaths
from torchtop.session.records import Record
from torchtop.session.tail import Tail

_LAST_BYTES = 64 << 10
"""Totals come twice a second: the last ones of a rank lie well within that."""

_PASSED_OVER = ("steps", "beat", "scalars")


def finished_steps(paths: SessionPaths) -> int | None:
    """The steps that all ranks have finished; None where none has ever trained."""
    ranks = fold_ranks(paths.ranks, _last)
    return min((rank.steps_done for rank in ranks if rank.header), default=None)


def _last(file: Path) -> list[Record]:
    return Tail(file, last_bytes=_LAST_BYTES, without=_PASSED_OVER).poll()
