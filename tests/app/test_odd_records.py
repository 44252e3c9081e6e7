"""Records of others may hold anything: the panes draw what they can and never fail."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.made_session import CASES, make
from app.test_panes import BODIES
from torchtop.app.panes import bars, data, gpus, host, step, throughput, verdict
from torchtop.app.panes.logs import LogsPane
from torchtop.app.screens.board import need_of
from torchtop.app.screens.lines import option_lines
from torchtop.app.text import plain, row_width
from torchtop.app.view import View
from torchtop.session.follow import Follower
from torchtop.session.state import Snapshot

JUNK: tuple[Any, ...] = (
    None, "text", "\x1b[2J", -1, 0, 1e300, float("nan"), float("inf"), True, [], {}, [None], [[]],
    {"x": 1}, 10**30,
)  # fmt: skip


def spoil(value: Any, chance: random.Random, share: float) -> Any:
    """A deep copy in which a share of all values is junk."""
    if chance.random() < share:
        return chance.choice(JUNK)
    if isinstance(value, dict):
        return {key: spoil(item, chance, share) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(spoil(item, chance, share) for item in value)
    return copy.copy(value)


def spoiled(snapshot: Snapshot, chance: random.Random, share: float) -> Snapshot:
    """A snapshot whose records are spoiled; what the state itself makes keeps its types."""

    def record(value: Any) -> Any:
        junk = spoil(value, chance, share)
        return junk if isinstance(junk, dict) else {}

    return replace(
        snapshot,
        meta=record(snapshot.meta),
        analysis=record(snapshot.analysis),
        exit=record(snapshot.exit or {"cause": "exception", "rank": 1, "message": "x"}),
        events=tuple(record(event) for event in snapshot.events),
        minutes=tuple(record(minute) for minute in snapshot.minutes),
        gpus=tuple(
            replace(
                gpu,
                facts=record(gpu.facts),
                now=record(gpu.now),
                processes=tuple(record(process) for process in gpu.processes),
            )
            for gpu in snapshot.gpus
        ),
        hosts=tuple(
            replace(node, facts=record(node.facts), now=record(node.now)) for node in snapshot.hosts
        ),
        ranks=tuple(
            replace(
                rank,
                header=record(rank.header),
                loaders=tuple(record(loader) for loader in rank.loaders),
                script=record(rank.script),
                process=record(rank.process),
            )
            for rank in snapshot.ranks
        ),
    )


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    root: Path = tmp_path_factory.mktemp("odd") / "s"
    return Follower(make(root, replace(CASES["eight"], gpus=3, ranks=3), 125)).poll()


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_no_record_can_break_a_pane(snapshot: Snapshot, seed: int, share: float) -> None:
    odd = spoiled(snapshot, random.Random(seed), share)
    for status in ("running", "failed"):
        view = View(snapshot=replace(odd, status=status))
        need_of(view)
        rows = [row for draw in BODIES.values() for row in draw(view, 78, 30)]
        rows += [bars.header(view, 80), bars.footer(view, 80, {"quit": "q"})]
        assert {row_width(row) for row in rows} <= {78, 80}
        asides: tuple[Callable[[View, int], Any], ...] = (
            verdict.aside, gpus.aside, step.aside, throughput.aside, data.aside, host.aside,
        )  # fmt: skip
        told = [plain(aside(view, 78)) for aside in asides]
        told += [plain(row) for row in (*rows, *option_lines(odd, {"lr": 0.1}))]
        assert [line for line in told if not line.isprintable()] == []


def test_the_logs_pane_takes_an_empty_page() -> None:
    assert LogsPane().compute(40, 5)
