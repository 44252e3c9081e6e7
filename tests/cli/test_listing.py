"""``ls``: a table that fits the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from torchtop.commands.listing import as_table

ROW: dict[str, Any] = {
    "id": "20261130-223748-straggler-5bbd",
    "workload": "straggler",
    "state": "ended",
    "status": "done",
    "started_at": "2026-11-30T22:37:48+00:00",
    "wall_s": 133.0,
    "steps": 45_000,
    "samples_per_s": 1500.0,
    "verdict": "STRAGGLER",
    "stage": None,
}


@pytest.mark.parametrize(
    ("cells", "missing"),
    [(None, []), (200, []), (90, ["STARTED"]), (80, ["STARTED", "WORKLOAD"])],
)
def test_what_an_id_tells_too_is_left_out_where_it_does_not_fit(
    cells: int | None, missing: list[str]
) -> None:
    head, line = as_table([ROW], cells).splitlines()
    assert [name for name in ("STARTED", "WORKLOAD", "STEPS") if name not in head] == missing
    assert cells is None or len(line) <= cells
    assert ROW["id"] in line and "45,000" in line


@pytest.mark.parametrize("value", [None, "x", [], {}])
def test_what_is_not_known_is_a_dash(value: Any) -> None:
    damaged = dict.fromkeys(("wall_s", "steps", "samples_per_s"), value)
    unknown = dict.fromkeys(ROW) | damaged | {"id": "20261130-223748-x", "state": "lost"}
    assert as_table([unknown], 80).splitlines()[1].split()[-3:] == ["–", "–", "–"]
