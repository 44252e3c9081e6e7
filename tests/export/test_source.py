"""Records as a stream: of the kinds and the time that are wanted, with times of one clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session.made import session, write
from torchtop.export import source as source_module
from torchtop.export.source import Source
from torchtop.session.load import load_paths
from torchtop.session.paths import SessionPaths


@pytest.fixture
def paths(tmp_path: Path) -> SessionPaths:
    return session(tmp_path / "s", host="host-a", wall_s=5000.0)


def source(paths: SessionPaths, last_s: float | None = None) -> Source:
    return Source(load_paths(paths), last_s)


def scalars(seconds: range, size: int = 1) -> list[dict[str, Any]]:
    """One record a second from 0 on, each about `size` bytes long."""
    return [
        {"kind": "scalars", "mono_ns": s * 10**9, "step": s, "values": {"x" * size: 1.0}}
        for s in seconds
    ]


def steps(source: Source) -> list[int]:
    (rank,) = source.ranks()
    return [record["step"] for record in source.records(rank.path, rank.host, "scalars")]


@pytest.mark.parametrize("size", [1, 3000])
@pytest.mark.parametrize("last_s", [0.5, 100.0, 500.0, 1e6])
def test_the_last_seconds_of_a_file_of_any_length(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch, size: int, last_s: float
) -> None:
    # given files that are read in pieces much shorter than they are, or in one
    monkeypatch.setattr(source_module, "_PIECE", 4096)
    write(paths.ranks / "0-0-9.jsonl", "process", *scalars(range(1000), size), rank=0)
    first = max(0, 1000 - int(last_s) - 1)
    assert steps(source(paths, last_s)) == list(range(first, 1000))
    assert steps(source(paths)) == list(range(1000))


def test_what_is_no_record_in_the_middle_hides_nothing(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_PIECE", 512)
    file = paths.ranks / "0-0-9.jsonl"
    write(file, "process", *scalars(range(100)), rank=0)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:40]) + b"\0" * 5000 + b"\n{torn\n" + b"".join(lines[40:]))
    assert steps(source(paths, 20.0)) == list(range(79, 100))


def test_only_the_kinds_that_are_wanted(paths: SessionPaths) -> None:
    told = [{"kind": "beat"}, {"kind": "odd"}, *scalars(range(2)), {"kind": "beat"}]
    write(paths.ranks / "0-0-9.jsonl", "process", *told, rank=0)
    made = source(paths)
    (rank,) = made.ranks()
    kinds = [record["kind"] for record in made.records(rank.path, rank.host, "odd", "beat")]
    assert kinds == ["beat", "odd", "beat"]


def test_hosts_have_clocks_of_their_own(paths: SessionPaths) -> None:
    # given two nodes whose monotonic clocks are far apart
    for host, offset in (("host-a", 0), ("host-b", 7000)):
        write(paths.node(host).events, "supervisor")
        text = paths.node(host).events.read_text()
        head, _, rest = text.partition('"mono_ns":')
        stamp = int(rest.split(",")[0])
        moved = rest.replace(str(stamp), str(stamp + offset * 10**9), 1)
        paths.node(host).events.write_text(f'{head}"mono_ns":{moved}')
    made = source(paths)
    apart_s = (made.unix_ns(0, "host-a") - made.unix_ns(0, "host-b")) / 1e9
    assert apart_s == pytest.approx(7000, abs=5)
    assert made.unix_ns(0) == made.unix_ns(0, "host-a") == made.unix_ns(0, "no such host")
