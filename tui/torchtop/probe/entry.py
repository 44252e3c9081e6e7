"""Entering a rank without changing it: what `rank.py` runs before, around and after the script."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import platform
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Callable, Dict, FrozenSet, Optional

from ..session.records import Appender
from . import facts, hooks, main

_PR_SET_PDEATHSIG = 1
_TRACEBACK_LIMIT = 64_000


def run(main_globals: Dict[str, Any], stage: Path, plain: FrozenSet[str]) -> None:
    """Become the script: returns or raises as the script does.

    Args:
        main_globals: the dictionary of the real ``__main__``, in which the script will run.
        stage: the folder that `rank.py` lies in.
        plain: the names of the modules that Python itself had loaded before ours.
    """
    _die_with_agent()
    log = _ProcessLog(stage.parent / "ranks")
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
        _write_down(error, ours, log)
        raise
    finally:
        log.write("exit", code=code)


def _die_with_agent() -> None:
    """No rank outlives its agent, whatever becomes of agent and supervisor."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() in (1, _number("TORCHTOP_SUPERVISOR_PID")):
        sys.exit(1)  # the agent was gone before the request was made


def _number(name: str) -> int:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return -1


class _ProcessLog:
    """This process's ``.process.jsonl``, and the file that stacks are dumped into on SIGUSR2."""

    def __init__(self, directory: Path) -> None:
        self._file: Optional[Appender] = None
        self.directory = directory
        who = facts.identity()
        stem = "{rank}-{attempt}-{pid}".format(pid=os.getpid(), **who)
        self._pid = os.getpid()
        try:
            self._file = Appender(
                directory / (stem + ".process.jsonl"),
                "process",
                argv=sys.argv[1:],
                python=platform.python_version(),
                **who,
            )
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._stacks = os.open(str(directory / (stem + ".stacks")), flags, 0o600)
            faulthandler.register(signal.SIGUSR2, file=self._stacks, all_threads=True)
        except (OSError, AttributeError, ValueError):
            pass  # unwatched, but it runs

    def write(self, kind: str, **fields: Any) -> None:
        """Append a record, if there is a file and this is not a forked child."""
        if self._file is None or os.getpid() != self._pid:
            return
        with contextlib.suppress(OSError):
            self._file.write(kind, **fields)


def _arm(torch: ModuleType, log: _ProcessLog) -> None:
    """Fail open: a release of torch that the probe does not know must still train."""

    def report(why: str) -> None:
        log.write("probe", disabled=why)

    try:
        hooks.install(torch, log.directory, report)
    except Exception as error:
        report("{}: {}".format(type(error).__name__, error))
    log.write("torch", version=str(getattr(torch, "__version__", "")))


def arm_on_import(arm: Callable[[ModuleType], None]) -> None:
    """Call ``arm(torch)`` as soon as the script's own ``import torch`` is through.

    torch is never imported before the script does it: what the script sets up before that import
    must hold.
    """
    sys.meta_path.insert(0, _TorchFinder(arm))


class _TorchFinder:
    """Finds torch like everybody else, and learns when it has been loaded.

    It stays until then: a script may look whether torch is there before it imports it.
    """

    def __init__(self, arm: Callable[[ModuleType], None]) -> None:
        self._arm = arm

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of torch from the finders that come after, with a loader that arms."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._tap(spec.loader)
                return spec
        return None

    def _tap(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return  # a namespace package: no torch that trains

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._arm(module)

        with contextlib.suppress(AttributeError, TypeError):  # a loader that cannot be tapped
            loader.exec_module = exec_module


def _hide_frames(ours: "set[Any]") -> None:
    """Let Python print the exception that ends the script, without the frames it came through."""
    show = sys.excepthook

    def excepthook(kind: Any, error: BaseException, frames: Optional[TracebackType]) -> None:
        sys.excepthook = show
        kept = _without(ours, frames)
        show(kind, error.with_traceback(kept), kept)

    sys.excepthook = excepthook


def _without(ours: "set[Any]", frames: Optional[TracebackType]) -> Optional[TracebackType]:
    while frames is not None and frames.tb_frame.f_code.co_filename in ours:
        frames = frames.tb_next
    return frames


def _write_down(error: BaseException, ours: "set[Any]", log: _ProcessLog) -> None:
    """The exception as a record; nothing that it does when it is asked gets in the way."""
    try:
        frames = _without(ours, error.__traceback__)
        lines = traceback.format_exception(type(error), error, frames)
        text = "".join(lines)[-_TRACEBACK_LIMIT:]
        message = str(error)[:4000]
    except Exception:
        text = message = ""
    log.write("exception", type=type(error).__name__, message=message, traceback=text)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    return stop.code if isinstance(stop.code, int) else 1
