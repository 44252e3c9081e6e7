"""The disk of the sessions fills up: telemetry makes way first, and what fails is named."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from faults.scripts import DDP
from launch.supervised import Run, launch, wait_until
from torchtop.session.paths import request_stop
from torchtop.session.room import RESERVE_BYTES
from torchtop.session.summary import build_summary
from torchtop.session.tail import Tail

SPARE_BYTES, BLOCK_BYTES = 1 << 20, 4096
DISK_BYTES = 3 * RESERVE_BYTES


class Disk:
    """A small disk that can be filled."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._filler = root / "filler"

    def leave(self, free_bytes: int) -> None:
        """Fill it up to so much."""
        disk = os.statvfs(self.root)
        with self._filler.open("ab", buffering=0) as file:
            size = disk.f_bavail * disk.f_frsize - free_bytes - SPARE_BYTES
            os.posix_fallocate(file.fileno(), 0, file.tell() + size)
            with suppress(OSError):  # what others have taken meanwhile is full, too
                for _ in range(SPARE_BYTES // BLOCK_BYTES if free_bytes else 10**6):
                    file.write(bytes(BLOCK_BYTES))

    def empty(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A file system in memory with a home for sessions."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a small disk here")
    monkeypatch.setenv("TORCHTOP_HOME", str(place / "state"))
    yield Disk(place)
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def rank_file(run: Run, rank: int) -> Path:
    files = run.paths.ranks.glob(f"{rank}-*.jsonl")
    return next(file for file in files if not file.name.endswith(".process.jsonl"))


@pytest.mark.fault(25, "the disk is full for telemetry", "told; training goes on; drops counted")
def test_telemetry_makes_way_and_training_goes_on(disk: Disk, tmp_path: Path) -> None:
    # given a run whose script counts its steps elsewhere
    counted = tmp_path / "counted"
    count = f"Path({str(counted)!r}).write_text(str(step))"
    loop = f"for step in range(10**9):\n    train_step()\n    rank or {count}\n    step or up()"
    session = launch(tmp_path, DDP + loop)
    try:
        session.started(2)
        steps = lambda: int(counted.read_text() or 0)  # noqa: E731
        wait_until(lambda: steps() > 100, "it trains")
        # when the disk has less left than telemetry may take
        disk.leave(RESERVE_BYTES // 2)
        full = lambda: [e for e in session.events("disk") if e["level"] == "full"]  # noqa: E731
        assert not wait_until(full, "it is told")[0]["telemetry"]
        wait_until(lambda: is_silent(session, steps), "no records while it trains")
        # and even when there is nothing left at all
        disk.leave(0)
        before = steps()
        wait_until(lambda: steps() > before + 100, "it trains on")
        # then it is whole again when there is room, with a count of what is missing
        disk.empty()
        wait_until(lambda: session.events("disk")[-1]["telemetry"], "it is told")
        probes = lambda: [r for r in Tail(rank_file(session, 0)).poll() if r["kind"] == "probe"]  # noqa: E731
        wait_until(lambda: probes()[-1]["dropped"] > 100, "the missing steps are counted")
        request_stop(session.paths, "stop", "a test")
        assert session.ended()[-1]["status"] == "stopped"
        summary = build_summary(session.paths)
        assert summary["probe"]["dropped"] > 100
        assert session.living() == []
    finally:
        session.clean()


def is_silent(run: Run, steps: object) -> bool:
    """Whether no rank has written for as long as some steps took."""
    assert callable(steps)
    size = lambda: [rank_file(run, rank).stat().st_size for rank in (0, 1)]  # noqa: E731
    before, done = size(), steps()
    wait_until(lambda: steps() > done + 50, "it trains on")
    return size() == before


@pytest.mark.fault(25, "the disk is full for logs", "named")
def test_a_full_disk_is_named_as_what_ended_the_run(disk: Disk, tmp_path: Path) -> None:
    # given a run that prints, on a disk that is full
    script = """
up()
while not Path("full").exists() or rank:
    time.sleep(0.02)
while True:
    print("a line of some length, as training scripts write them, again and again")
"""
    session = launch(tmp_path, script)
    try:
        session.started(2)
        disk.leave(0)
        (tmp_path / "full").touch()
        events = session.ended()
        # then it fails, which is told with its cause although there is no room for anything
        assert (session.exit["cause"], session.exit["rank"]) == ("disk_full", 0), session.exit
        assert "No space left on device" in session.exit["message"]
        assert events[-1]["status"] == "failed"
        assert session.living() == []
    finally:
        session.clean()
