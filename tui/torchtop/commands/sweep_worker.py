"""The process that measures a sweep for a screen, and outlives it: ``sweep_worker SWEEP_DIR``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from torchtop.commands import sweep
from torchtop.commands.errors import UsageError
from torchtop.commands.text import safe
from torchtop.experiment.journal import Journal
from torchtop.experiment.plan import Plan
from torchtop.launch import boot
from torchtop.launch.spec import LaunchError
from torchtop.session.locks import is_locked
from torchtop.session.paths import SessionError
from torchtop.session.sweeps import SweepPaths

AGAIN = "--again"
"""Try again what has failed."""

_TROUBLE = "cannot measure: "
"""What the line that ends a process begins with."""


class Worker:
    """The process that measures a sweep, started here or by somebody else.

    Args:
        paths: the sweep.
    """

    def __init__(self, paths: SweepPaths) -> None:
        self._paths = paths
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, again: bool = False) -> None:
        """Start it, in an OS session of its own.

        Raises:
            SessionError: the sweep's directory cannot be written.
        """
        words = [str(self._paths.root), *([AGAIN] if again else [])]
        try:
            with self._paths.log.open("ab") as log:
                self._process = subprocess.Popen(
                    boot.command("torchtop.commands.sweep_worker", *words),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=Plan.load(self._paths.plan).cwd,
                    start_new_session=True,
                )
        except OSError as error:
            raise SessionError(f"cannot measure in {self._paths.root}: {error.strerror}") from None

    @property
    def is_alive(self) -> bool:
        """Whether something measures the sweep."""
        if self._process is not None and self._process.poll() is None:
            return True
        return is_locked(self._paths.lock)

    def stop(self) -> None:
        """Ask it to stop what it measures; a second time: at once."""
        asked = self._paths.request("stop").exists()
        self._paths.request("kill" if asked else "stop").touch()

    def trouble(self) -> str | None:
        """Why it ended before it could measure, in one line; None where it did not."""
        process = self._process
        if process is None or process.poll() in (None, 0, sweep.STOPPED):
            return None
        lines = self._paths.log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        if last.startswith(_TROUBLE):
            return safe(last)
        return f"the measuring ended with status {process.returncode}: see {self._paths.log}"


def main() -> int:
    """Measure what is missing of a sweep."""
    paths = SweepPaths(Path(sys.argv[1]))
    try:
        plan, machine = sweep.reopened(paths)
        with Journal(paths) as journal:
            if AGAIN in sys.argv[2:]:
                journal.forget_failures()
            table = sweep.measure(journal, plan, machine, sys.stdout)
    except (UsageError, LaunchError, SessionError) as error:
        print(_TROUBLE + str(error), flush=True)
        return 1
    return 0 if table["status"] == "done" else sweep.STOPPED


if __name__ == "__main__":
    raise SystemExit(main())
