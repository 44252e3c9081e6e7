"""What an inspection of a step found: asked for, read, and told in a few words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session.made import held_lock, session, write
from torchtop.session.calls import calls_of, said
from torchtop.session.inspections import Inspected, found_by, take, tell
from torchtop.session.paths import SessionError, SessionPaths
from torchtop.session.report import render_markdown
from torchtop.session.state import SessionState
from torchtop.session.summary import build_summary

ITEM: dict[str, Any] = {
    "file": "/home/ana/run/train.py",
    "line": 88,
    "function": "step",
    "text": "loss.item()",
    "count": 1,
    "call": None,
    "library": None,
}
WITHIN = ITEM | {
    "text": "trainer.train()",
    "count": 3,
    "library": {
        "file": "/x/site-packages/transformers/trainer.py",
        "line": 1920,
        "function": "log",
        "text": "tr_loss.item()",
    },
}


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (ITEM, "loss.item() at train.py:88, 1 a step"),
        (
            WITHIN,
            "trainer.train() at train.py:88 (tr_loss.item() in transformers/trainer.py:1920), "
            "3 a step",
        ),
        (
            ITEM | {"text": None, "call": "torch.cuda.synchronize"},
            "torch.cuda.synchronize at train.py:88, 1 a step",
        ),
        (ITEM | {"text": None}, "a call at train.py:88, 1 a step"),
        (ITEM | {"text": "x" * 100}, f"{'x' * 57}... at train.py:88, 1 a step"),
    ],
)
def test_a_call_is_told_in_a_few_words(call: dict[str, Any], text: str) -> None:
    assert said(call) == text


@pytest.mark.parametrize("calls", [None, 7, "text", [None, 7, {}, {"count": "many"}]])
def test_what_is_no_call_is_passed_over(calls: Any) -> None:
    assert list(calls_of({"calls": calls})) == []


def test_ranks_that_found_the_same_are_told_together() -> None:
    found = [
        *(Inspected(rank, 7, (ITEM, WITHIN)) for rank in (0, 1, 3)),
        Inspected(2, 7, (ITEM,)),
        Inspected(4, 8),
        Inspected(5, problem="nothing to inspect: no CUDA"),
    ]

    assert [(line.kind, line.text) for line in tell(found)] == [
        ("rank", "ranks 0-1, 3, step 7: 2 places wait for the GPU"),
        ("call", said(ITEM)),
        ("call", said(WITHIN)),
        ("rank", "rank 2, step 7: 1 place waits for the GPU"),
        ("call", said(ITEM)),
        ("rank", "rank 4, step 8: no call that waits for the GPU was seen"),
        ("rank", "rank 5: not inspected"),
        ("note", "nothing to inspect: no CUDA"),
    ]


@pytest.fixture
def paths(tmp_path: Path) -> SessionPaths:
    made = session(tmp_path / "20260101-000000-made-0001", wall_s=0.0)
    told = {"kind": "inspected", "id": "old", "step": 12, "problem": None}
    for rank, calls in ((0, [ITEM]), (1, [ITEM, WITHIN])):
        write(
            made.ranks / f"{rank}-0-1.jsonl",
            "rank",
            {"kind": "beat", "marker": "B0", "marker_ns": 1, "step": 12, "ready": None},
            {**told, "calls": calls, "requested_by": "ana"},
            rank=rank,
            attempt=0,
        )
    return made


def test_the_last_inspection_of_each_rank_is_part_of_the_state(paths: SessionPaths) -> None:
    state = SessionState()
    for file in sorted(paths.ranks.iterdir()):
        for line in file.read_text().splitlines():
            state.apply(f"ranks/{file.name}", json.loads(line))

    zero, one = state.snapshot(None, False, 0, False).ranks

    assert found_by(zero) == Inspected(0, 12, (ITEM,))
    assert len(found_by(one).calls) == 2


def test_the_summary_tells_each_call_once(paths: SessionPaths) -> None:
    summary = build_summary(paths)

    assert summary["ranks"][0]["inspected"] == {"step": 12, "problem": None, "calls": [ITEM]}
    text = render_markdown(summary)
    assert "**Waits for the GPU, in a step that was inspected:**" in text
    assert r"- loss.item\(\) at train.py:88, 1 a step" in text.replace("(", r"\(").replace(
        ")", r"\)"
    )
    assert text.count("loss.item()") == 2  # and once within the other
    assert "1 a step (rank" not in text
    assert "3 a step (rank 1)" in text


def test_what_does_not_run_has_no_step_to_inspect(paths: SessionPaths) -> None:
    with pytest.raises(SessionError, match="is not running"):
        take(paths, "test")


def test_a_session_in_which_no_rank_trains_is_not_asked(tmp_path: Path) -> None:
    made = session(tmp_path / "20260101-000000-made-0001")
    node = made.node("host-a")
    with held_lock(node.lock), pytest.raises(SessionError, match=r"no rank of .* trains yet"):
        take(made, "test")

    assert list(node.requests.iterdir()) == []


def test_ranks_that_do_not_answer_are_told(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchtop.session.inspections._ANSWER_S", 0.3)
    node = paths.node("host-a")
    with held_lock(node.lock):
        found = take(paths, "test")

    assert [(one.rank, one.calls) for one in found] == [(0, ()), (1, ())]
    assert all("has not come to the end of a step" in str(one.problem) for one in found)
    (request,) = node.requests.iterdir()
    told = json.loads(request.read_text())
    assert (told["mode"], told["requested_by"]) == ("inspect", "test")
    assert told["id"] != "old"
