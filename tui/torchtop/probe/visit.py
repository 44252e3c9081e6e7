"""In every Python process that a command of the user's starts: ready for torch, and for no more.

Run by the staged ``sitecustomize`` before anything of the user's. So it loads no module that Python
itself has not loaded by then: a launcher, ``pip`` or a data-loader worker is none the slower, and a
``json.py`` of the user's is found as ever. The rest of the probe is loaded when the process imports
torch, or when a rank ends before that.
"""

from __future__ import annotations

import os
import sys

from .finder import arm_on_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

MARK = "TORCHTOP_RANK"
"""Variable by which what a rank starts knows that it is not that rank."""


def visit(stage: str) -> None:
    """Get ready.

    Args:
        stage: the session's ``stage`` folder.
    """
    is_rank = _is_rank()
    arm_on_import(lambda torch: _arm(stage, torch, is_rank))
    sys.meta_path.append(_Fallback(os.path.join(stage, "fallback")))
    if is_rank:
        _keep_output(os.path.dirname(stage))
        import atexit  # built in

        atexit.register(_leave, stage, os.getpid())


def _is_rank() -> bool:
    """Whether a launcher has started this process as a rank: it, and nothing that it starts."""
    who = [os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")]
    if not all(who[:3]):
        return False
    which = ":".join([*(value or "" for value in who), _restarts()])
    pid, _, marked = os.environ.get(MARK, "").partition(":")
    if marked == which and pid != str(os.getpid()):
        return False
    os.environ[MARK] = "{}:{}".format(os.getpid(), which)
    return True


def _restarts() -> str:
    return os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"


def _keep_output(session: str) -> None:
    """Give a rank log files of its own, where it shares the command's with all others.

    What the user has sent elsewhere stays there.
    """
    try:
        shared = os.stat(os.path.join(session, "logs", "command", "attempt_0", "0", "stdout.log"))
        local_rank = str(int(os.environ["LOCAL_RANK"]))
        attempt = "attempt_{}".format(int(_restarts()))
        folder = os.path.join(session, "logs", "ranks", attempt, local_rank)
        for number, name in ((1, "stdout"), (2, "stderr")):
            if os.path.samestat(os.fstat(number), shared):
                os.makedirs(folder, mode=0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                file = os.open(os.path.join(folder, name + ".log"), flags, 0o600)
                os.dup2(file, number)
                os.close(file)
    except (OSError, ValueError):
        pass  # it goes on in the command's


def _arm(stage: str, torch: ModuleType, is_rank: bool) -> None:
    """The process has imported torch: from now on it may turn out to train."""
    try:
        with _StandardLibrary():
            from . import guest
        guest.arrive(stage, torch, is_rank)
    except Exception:
        pass  # whatever it is, the script runs


def _leave(stage: str, pid: int) -> None:
    """At the end of a rank: say how, also where it never came to torch."""
    if os.getpid() != pid:
        return
    try:
        with _StandardLibrary():
            from . import guest
        guest.leave(stage, pid)
    except Exception:
        pass


class _Fallback:
    """Finds torchtop for scripts where their interpreter has none: comes last of all finders."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of our packages, and of no other."""
        if name not in ("torchtop", "torchtop_workloads"):
            return None
        from _frozen_importlib_external import PathFinder

        return PathFinder.find_spec(name, [self._folder])


class _StandardLibrary:
    """While it is entered, an import of a standard module finds that, and no file of the user's.

    A ``queue.py`` of the user's that has been imported already is put aside meanwhile.
    """

    def __init__(self) -> None:
        self._folder = os.path.dirname(os.__file__)
        names = {name.partition(".")[0] for name in os.listdir(self._folder)}
        self._aside = {
            name: module
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] in names and not self._is_standard(module)
        }

    def _is_standard(self, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        return not file or (file.startswith(self._folder + os.sep) and "-packages" not in file)

    def __enter__(self) -> None:
        self._tops = {name.partition(".")[0] for name in self._aside}
        for name in self._aside:
            del sys.modules[name]
        sys.path.insert(0, self._folder)

    def __exit__(self, *_: object) -> None:
        sys.path.remove(self._folder)
        for name in list(sys.modules):
            if name.partition(".")[0] in self._tops:
                del sys.modules[name]
        sys.modules.update(self._aside)
