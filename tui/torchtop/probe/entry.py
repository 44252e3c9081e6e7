"""Entering a rank without changing it: what `rank.py` runs before, around and after the script."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib.machinery
import importlib.util
import os
import platform
import runpy
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Optional

from ..session.records import Appender
from . import facts

_PR_SET_PDEATHSIG = 1
_TRACEBACK_LIMIT = 64_000


def run(main_globals: Dict[str, Any], stage: Path) -> None:
    """Become the script: never returns normally where the script exits.

    Args:
        main_globals: the dictionary of the real ``__main__``, in which the script will run.
        stage: the folder that `rank.py` lies in.
    """
    _die_with_agent()
    log = _ProcessLog(stage.parent / "ranks")
    arm_on_import(lambda torch: _arm(torch, log))
    if importlib.util.find_spec("torchtop") is None:
        # A built-in workload in an interpreter that has torch alone. At the end of the path, so
        # that nothing of that environment is shadowed.
        sys.path.append(str(stage / "fallback"))
    argv = sys.argv[1:]
    code = 1
    try:
        if argv[:1] == ["-m"]:
            _run_module(argv[1], argv[2:])
        else:
            _run_script(main_globals, argv[0], argv[1:])
        code = 0
    except SystemExit as stop:
        code = _exit_code(stop)
        raise
    except KeyboardInterrupt:
        code = 130
        raise
    except BaseException as error:
        _report(error, log)
        sys.exit(1)
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
        if self._file is None or os.getpid() != self._pid:
            return
        try:
            self._file.write(kind, **fields)
        except OSError:
            self._file = None


def _arm(torch: ModuleType, log: _ProcessLog) -> None:
    from . import hooks

    hooks.install(torch, log.directory)
    log.write("torch", version=str(getattr(torch, "__version__", "")))


def arm_on_import(arm: Any) -> None:
    """Call ``arm(torch)`` as soon as the script's own ``import torch`` is through.

    torch is never imported before the script does it: what the script sets up before that import
    must hold.
    """
    if "torch" in sys.modules:
        _quietly(arm, sys.modules["torch"])
        return
    sys.meta_path.insert(0, _TorchFinder(arm))


class _TorchFinder:
    """Finds torch like everybody else, and learns when it has been loaded."""

    def __init__(self, arm: Any) -> None:
        self._arm = arm

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        loader = None if spec is None else spec.loader
        if loader is None:
            return spec
        execute, arm = loader.exec_module, self._arm

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            _quietly(arm, module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _quietly(arm: Any, torch: ModuleType) -> None:
    """Fail open: a release of torch that the probe does not know must still train."""
    try:
        arm(torch)
    except Exception:
        print("torchtop: the probe could not start:", file=sys.stderr)
        traceback.print_exc(limit=3)


def _run_script(main_globals: Dict[str, Any], script: str, argv: List[str]) -> None:
    """Run a file as ``python script argv`` does."""
    path = Path(script).absolute()
    sys.argv = [script, *argv]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(path.resolve().parent)
    if path.is_dir() or path.suffix in (".zip", ".pyz"):
        runpy.run_path(str(path), run_name="__main__")
        return
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    main_globals.clear()
    main_globals.update(
        __name__="__main__",
        __doc__=None,
        __package__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", str(path)),
        __spec__=None,
        __annotations__={},
        __builtins__=sys.modules["builtins"],
        __file__=str(path),
        __cached__=None,
    )
    exec(code, main_globals)


def _run_module(name: str, argv: List[str]) -> None:
    """Run a module as ``python -m name argv`` does."""
    sys.argv = ["-m", *argv]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path.cwd())
    runpy._run_module_as_main(name, alter_argv=True)  # type: ignore[attr-defined]


def _report(error: BaseException, log: _ProcessLog) -> None:
    """Write the exception down, and print it as Python would, without our frames."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
        frames = frames.tb_next
    error = error.with_traceback(frames)
    text = "".join(traceback.format_exception(type(error), error, frames))
    log.write(
        "exception",
        type=type(error).__name__,
        message=str(error)[:4000],
        traceback=text[-_TRACEBACK_LIMIT:],
    )
    sys.excepthook(type(error), error, frames)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    return stop.code if isinstance(stop.code, int) else 1
