"""Ranks and workers, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devices.waiting import until
from torchtop.devices.ranks import RankWatcher, loader_workers, read_header, read_usage
from torchtop.session import records

_RANK = """
import ctypes, os, signal, sys

ready, up = os.pipe()

def worker():
    pid = os.fork()
    if pid == 0:
        if {named}:
            ctypes.CDLL(None).prctl(15, b"pt_data_worker", 0, 0, 0)
        os.write(up, b"w")
        if {busy}:
            while True:
                pass
        signal.pause()
    return pid

workers = [worker() for _ in range({count})]
for _ in workers:
    os.read(ready, 1)
helper = os.posix_spawn("/bin/sleep", ["sleep", "600"], {{}})
print("workers", *workers, flush=True)
sys.stdin.read()
for pid in [*workers, helper]:
    os.kill(pid, signal.SIGKILL)
"""


class FakeRank:
    """A process with forked workers and one helper of another program."""

    def __init__(self, *, named: bool = True, busy: bool = False, count: int = 2) -> None:
        code = _RANK.format(named=named, busy=busy, count=count)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.workers = {int(pid) for pid in self.process.stdout.readline().split()[1:]}

    def stop(self) -> None:
        self.process.communicate("")


@pytest.fixture
def rank() -> Iterator[FakeRank]:
    found = FakeRank()
    yield found
    found.stop()


def leave_header(folder: Path, pid: int, /, **changes: object) -> Path:
    """The header as the rank's own process writes it."""
    path = folder / f"0-0-{pid}.process.jsonl"
    appender = records.Appender(path, "process", rank=3, local_rank=0, world_size=1, attempt=0)
    appender.close()
    header = json.loads(path.read_text())
    header.update({"pid": pid, "pid_start_ticks": records.start_ticks(pid), **changes})
    path.write_bytes(records.encode(header))
    return path


def test_a_rank_and_its_workers_are_found(tmp_path: Path, rank: FakeRank) -> None:
    leave_header(tmp_path, rank.process.pid)

    (entry,) = RankWatcher(tmp_path).sample(100.0)

    assert list(entry) == ["rank", "process_pid", "cpu_percent", "rss_bytes", "workers"]
    assert entry["rank"] == 3
    assert entry["process_pid"] == rank.process.pid
    assert entry["rss_bytes"] > 1 << 20
    assert entry["cpu_percent"] is None  # one reading is no rate
    assert {worker["process_pid"] for worker in entry["workers"]} == rank.workers
    assert list(entry["workers"][0]) == ["process_pid", "cpu_percent", "rss_bytes"]


def test_cpu_percent_is_cpu_time_over_wall_time(tmp_path: Path) -> None:
    rank = FakeRank(busy=True, count=1)
    try:
        leave_header(tmp_path, rank.process.pid)
        (worker,) = rank.workers
        watcher = RankWatcher(tmp_path)
        before = read_usage(worker)
        watcher.sample(0.0)
        assert before is not None
        until(lambda: usage_ticks(worker) >= before.cpu_ticks + 20)

        (entry,) = watcher.sample(10.0)

        after = usage_ticks(worker)
        spent = entry["workers"][0]["cpu_percent"] * 10.0 / 100 * os.sysconf("SC_CLK_TCK")
        assert 20 <= round(spent) <= after - before.cpu_ticks
    finally:
        rank.stop()


def usage_ticks(pid: int) -> int:
    usage = read_usage(pid)
    assert usage is not None
    return usage.cpu_ticks


def test_a_record_soon_after_another_repeats_its_percent(tmp_path: Path, rank: FakeRank) -> None:
    leave_header(tmp_path, rank.process.pid)
    watcher = RankWatcher(tmp_path)
    watcher.sample(0.0)
    (first,) = watcher.sample(5.0)

    (soon,) = watcher.sample(5.01)

    assert first["cpu_percent"] is not None
    assert soon["cpu_percent"] == first["cpu_percent"]


def test_workers_of_an_older_torch_are_forks_of_the_rank() -> None:
    rank = FakeRank(named=False)
    try:
        assert {pid for pid, _ in loader_workers(rank.process.pid)} == rank.workers
    finally:
        rank.stop()


def test_a_rank_that_has_ended_is_left_out(tmp_path: Path, rank: FakeRank) -> None:
    leave_header(tmp_path, rank.process.pid)
    watcher = RankWatcher(tmp_path)
    assert len(watcher.sample(0.0)) == 1

    rank.stop()

    assert watcher.sample(5.0) == []


@pytest.mark.parametrize(
    "change", [{"pid_start_ticks": 1}, {"host": "elsewhere"}, {"boot_id": "another"}, {"pid": "x"}]
)
def test_a_pid_that_is_not_the_ranks_is_not_believed(
    tmp_path: Path, rank: FakeRank, change: dict[str, object]
) -> None:
    leave_header(tmp_path, rank.process.pid, **change)

    assert RankWatcher(tmp_path).sample(0.0) == []


def test_a_header_that_is_still_being_written_is_read_later(tmp_path: Path, rank: FakeRank) -> None:
    path = leave_header(tmp_path, rank.process.pid)
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    watcher = RankWatcher(tmp_path)
    assert watcher.sample(0.0) == []

    path.write_bytes(whole)

    assert len(watcher.sample(5.0)) == 1


def test_files_that_are_no_headers_are_harmless(tmp_path: Path) -> None:
    for number, content in enumerate([b"", b"\xff\xfe\n", b"[1, 2]\n", b"[" * 100_000 + b"\n"]):
        path = tmp_path / f"{number}.process.jsonl"
        path.write_bytes(content)
        assert read_header(path) is None
    assert RankWatcher(tmp_path).sample(0.0) == []
    assert RankWatcher(tmp_path / "not there yet").sample(0.0) == []


def test_workers_of_a_real_loader_are_found() -> None:
    pytest.importorskip("torch")
    code = (
        "import torch, torch.utils.data as d\n"
        "loader = iter(d.DataLoader(d.TensorDataset(torch.zeros(64, 1)), num_workers=2))\n"
        "next(loader); print(*[w.pid for w in loader._workers], flush=True); input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        expected = set(map(int, process.stdout.readline().split()))

        assert len(expected) == 2
        # A worker names itself a moment after it has been forked.
        until(lambda: {pid for pid, _ in loader_workers(process.pid)} == expected)
    finally:
        process.communicate("\n")
