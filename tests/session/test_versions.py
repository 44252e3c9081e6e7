"""Which versions a summary tells."""

from __future__ import annotations

from typing import Any

from torchtop.session.folds import RankFold
from torchtop.session.versions import versions


def rank(*records: dict[str, Any], header: dict[str, Any] | None = None) -> RankFold:
    fold = RankFold()
    for record in records:
        fold.apply_process("0-0-1.process.jsonl", record)
    if header:
        fold.apply("0-0-1.jsonl", {"kind": "header", **header})
    return fold


BEGUN = {"kind": "header", "python": "3.12.3"}
BUILT = {"kind": "torch", "version": "2.11.0+cu130", "cuda": "13.0"}


def test_a_rank_on_the_cpu_tells_the_cuda_of_its_build_too() -> None:
    header = {"torch": "2.11.0+cu130", "cuda": None, "nccl": None}
    told = versions({"versions": {"torchtop": "1"}}, [rank(BEGUN, BUILT, header=header)])
    assert (told["python"], told["torch"], told["cuda"]) == ("3.12.3", "2.11.0+cu130", "13.0")
    assert told["nccl"] is None


def test_a_rank_that_never_trained_tells_what_it_imported() -> None:
    told = versions({}, [rank(BEGUN), rank(BEGUN, BUILT)])
    assert (told["torch"], told["cuda"]) == ("2.11.0+cu130", "13.0")


def test_without_ranks_it_is_what_the_launch_knew() -> None:
    told = versions({"versions": {"torchtop": "1", "torch": "2.1", "cuda": "11.8"}}, [])
    assert (told["torch"], told["cuda"]) == ("2.1", "11.8")


def test_a_build_for_the_cpu_has_no_cuda() -> None:
    own = {"versions": {"torchtop": "1", "python": "3.11", "torch": None, "cuda": None}}
    told = versions(own, [rank(BEGUN, {"kind": "torch", "version": "2.1+cpu", "cuda": None})])
    assert (told["torch"], told["cuda"]) == ("2.1+cpu", None)
