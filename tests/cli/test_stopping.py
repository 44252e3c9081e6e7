"""``stop`` comes back when nothing of the session is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torchtop.commands import stopping
from torchtop.launch.processes import look
from torchtop.session.paths import SessionPaths


def test_stop_waits_for_a_supervisor_that_has_let_go_of_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a session whose supervisor has told its end, and is still there for a moment
    paths = SessionPaths(tmp_path / "sessions" / "20260101-000000-a-0001")
    supervisor = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = look(supervisor.pid)
    assert process is not None
    events = paths.node("here").events
    events.parent.mkdir(parents=True)
    header = {"kind": "header", "seq": 0, "mono_ns": 1, "schema": 1, "pid": supervisor.pid}
    header["pid_start_ticks"] = process.start_ticks
    events.write_text(json.dumps(header) + "\n")
    waits: list[float] = []

    def sleeps(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            supervisor.communicate(b"\n")

    monkeypatch.setattr(stopping.time, "sleep", sleeps)
    monkeypatch.setattr(stopping, "request_stop", lambda *_: None)
    ended = type("Ended", (), {"live": False, "status": "stopped", "exit": None})()
    monkeypatch.setattr(stopping, "follow_until_end", lambda *_: ended)

    # when
    try:
        assert stopping._stop(paths, "stop", no_wait=False) == 0
    finally:
        supervisor.kill()
        supervisor.wait()
    # then
    assert len(waits) == 3
