"""Another workload is asked for while one still ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.message import Message

from faults.scripts import Start
from launch.supervised import Run, wait_until
from torchtop.app.messages import Follow, Told
from torchtop.app.operations import Operations
from torchtop.cli import parse
from torchtop.commands.live import LiveController
from torchtop.launch.spec import LaunchSpec
from torchtop.launch.supervisor import LAUNCH_FILE
from torchtop.session.paths import SessionPaths, request_stop

DEAF_WITH_A_DAEMON = """
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], start_new_session=True)
up()
while True:
    time.sleep(0.05)
"""


class Watching(LiveController):
    """The real controller; what is left of the session before is noted as the next one starts."""

    before: Run
    left: list[int] | None = None

    def start(self, name: str, options: dict[str, str]) -> Path:
        self.left = self.before.living()
        return super().start(name, options)


@pytest.mark.fault(9, "another workload during a stop", "starts when the old tree is gone")
def test_a_switch_waits_until_nothing_of_the_old_run_is_left(run: Start, tmp_path: Path) -> None:
    # given a run that does not end by itself, and a stop of it that is under way
    session = run(DEAF_WITH_A_DAEMON)
    session.started(2)
    request_stop(session.paths, "stop", "a test")
    wait_until(lambda: session.events("stop"), "the stop is under way")
    assert session.living()
    # when a workload is asked for in its place
    spec = LaunchSpec.load(session.paths.stage / LAUNCH_FILE)
    controller = Watching(parse([]), tmp_path, spec)
    controller.before = session
    posted: list[Message] = []
    operations = Operations(controller, posted.append)
    operations.switch(session.paths.root, "test", "train.py", {})
    follow: Any = wait_until(
        lambda: next((m for m in posted if isinstance(m, (Follow, Told))), None), "it is started"
    )
    # then nothing of the old one was there any more when the new one began
    assert isinstance(follow, Follow), vars(follow)
    assert controller.left == []
    assert session.events("end")[0]["status"] == "stopped"
    following = Run(SessionPaths(controller.started.root if controller.started else tmp_path))
    try:
        following.started(2)
        request_stop(following.paths, "kill", "a test")
        following.ended()
        assert following.living() == []
    finally:
        following.clean()
