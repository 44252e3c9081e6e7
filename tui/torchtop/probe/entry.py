"""Entering a rank without changing it: what `rank.py` runs before, around and after the script."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Collection, Dict, FrozenSet, Optional

from . import facts, main
from .finder import arm_on_import
from .process import ProcessLog, arm, without

_PR_SET_PDEATHSIG = 1


def run(main_globals: Dict[str, Any], stage: Path, plain: FrozenSet[str]) -> None:
    """Become the script: returns or raises as the script does.

    Args:
        main_globals: the dictionary of the real ``__main__``, in which the script will run.
        stage: the folder that `rank.py` lies in.
        plain: the names of the modules that Python itself had loaded before ours.
    """
    _die_with_agent()
    log = ProcessLog(stage.parent / "ranks")
    log.open(facts.identity())
    arm_on_import(lambda torch: _arm(torch, log))
    ours = {__file__, main.__file__, main_globals.get("__file__")}
    code = 1
    try:
        main.run(main_globals, sys.argv[1:], stage / "fallback", plain)
        code = 0
    except SystemExit as stop:
        code = _exit_code(stop)
        raise
    except BaseException as error:
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        _hide_frames(ours)
        log.write_exception(error, ours)
        raise
    finally:
        log.write("exit", code=code)


def _arm(torch: ModuleType, log: ProcessLog) -> None:
    arm(torch, log)


def _die_with_agent() -> None:
    """No rank outlives its agent, whatever becomes of agent and supervisor."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.environ.get("TORCHTOP_LAUNCHER") == "none":
        return  # the supervisor itself is its parent
    if os.getppid() in (1, _number("TORCHTOP_SUPERVISOR_PID")):
        sys.exit(1)  # the agent was gone before the request was made


def _number(name: str) -> int:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return -1


def _hide_frames(ours: Collection[Any]) -> None:
    """Let Python print the exception that ends the script, without the frames it came through."""
    show = sys.excepthook

    def excepthook(kind: Any, error: BaseException, frames: Optional[TracebackType]) -> None:
        sys.excepthook = show
        kept = without(ours, frames)
        show(kind, error.with_traceback(kept), kept)

    sys.excepthook = excepthook


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    return stop.code if isinstance(stop.code, int) else 1
