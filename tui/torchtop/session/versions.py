"""Which versions a run was made with: as the ranks told them, else as the launch knew them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torchtop.session.folds import RankFold

_OF_A_RANK = ("python", "torch", "cuda", "nccl")
_NAMES = ("torchtop", "python", "torch", "cuda", "nccl", "driver")


def versions(meta: Mapping[str, Any], ranks: Iterable[RankFold]) -> dict[str, Any]:
    """The ``versions`` of a summary; null where nothing told one.

    A command brings its own interpreter, of which only its ranks can tell. cuda is the CUDA that
    PyTorch was built for, also of a run on the CPU.

    Args:
        meta: ``session.json``.
        ranks: all that is known of the ranks, also of those that never trained.
    """
    known = dict(meta.get("versions") or {})
    for rank in reversed(list(ranks)):  # the lowest has the last word
        built = {"torch": rank.torch.get("version"), "cuda": rank.torch.get("cuda")}
        for told in (rank.process_header, built, rank.header):
            known.update({n: told[n] for n in _OF_A_RANK if told.get(n)})
    return {name: known.get(name) for name in _NAMES}
