"""What a rank's process tells of itself: that it is there, how it went, and where it stands."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import platform
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Collection, Dict, Optional

from ..session.records import Appender
from . import hooks
from .runtime import Probe

_TRACEBACK_LIMIT = 64_000
_ROOM_BYTES = 128 << 10
"""For the exception that a full disk will be the cause of."""
_IMAGES = 100
"""How often one process may replace its program (exec) and still be told of."""


class ProcessLog:
    """This process's ``.process.jsonl``, and the file that stacks are dumped into on SIGUSR2.

    Args:
        directory: the session's ``ranks`` folder.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file: Optional[Appender] = None
        self._pid = -1

    @property
    def is_open(self) -> bool:
        """Whether this process, and not one that it was forked from, has opened it."""
        return self._pid == os.getpid()

    def open(self, who: Dict[str, Any], **more: Any) -> None:
        """Open the files. Where that fails the process runs unwatched.

        Args:
            who: which rank it is, as `facts.identity`.
            **more: further fields of the header.
        """
        self._pid, self._file = os.getpid(), None
        stem = "{rank}-{attempt}-{pid}".format(pid=self._pid, **who)
        try:
            self._file = _create(self.directory, stem, {**who, **more})
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._stacks = os.open(str(self.directory / (stem + ".stacks")), flags, 0o600)
            faulthandler.register(signal.SIGUSR2, file=self._stacks, all_threads=True)
        except (OSError, AttributeError, ValueError):
            pass

    def write(self, kind: str, **fields: Any) -> None:
        """Append a record, if there is a file and this is not a forked child."""
        if self._file is None or not self.is_open:
            return
        with contextlib.suppress(OSError):
            self._file.write(kind, **fields)

    def write_exception(self, error: BaseException, ours: Collection[Any] = ()) -> None:
        """Append the exception that ends the process, without the frames of files in `ours`.

        Nothing that the exception does when it is asked gets in the way.
        """
        try:
            frames = without(ours, error.__traceback__)
            lines = traceback.format_exception(type(error), error, frames)
            text = "".join(lines)[-_TRACEBACK_LIMIT:]
            message = str(error)[:4000]
        except Exception:
            text = message = ""
        self.write("exception", type=type(error).__name__, message=message, traceback=text)


def _create(directory: Path, stem: str, header: Dict[str, Any]) -> Appender:
    """A file of this process's own, also after it has replaced its program and kept its number.

    Raises:
        OSError: there is none to be had.
    """
    header = {"argv": sys.argv[1:], "python": platform.python_version(), **header}
    for image in range(_IMAGES):
        name = stem + ("-{}".format(image) if image else "") + ".process.jsonl"
        try:
            return Appender(directory / name, "process", room_bytes=_ROOM_BYTES, **header)
        except FileExistsError:
            continue
    raise FileExistsError(stem)


def without(ours: Collection[Any], frames: Optional[TracebackType]) -> Optional[TracebackType]:
    """A traceback from its first frame on that is of no file in `ours`."""
    while frames is not None and frames.tb_frame.f_code.co_filename in ours:
        frames = frames.tb_next
    return frames


def arm(torch: ModuleType, log: ProcessLog) -> Optional[Probe]:
    """Arm the probe of a rank. Fails open: a release of torch that it does not know must train.

    Returns:
        The probe, or None where there is none to be had.
    """
    probe = None

    def report(why: str) -> None:
        log.write("probe", disabled=why)

    try:
        probe = hooks.install(torch, log.directory, report)
    except Exception as error:
        report("{}: {}".format(type(error).__name__, error))
    log.write("torch", **built(torch))
    return probe


def built(torch: ModuleType) -> Dict[str, Any]:
    """What a PyTorch is: its version, and the CUDA that it was built for (None: for a CPU)."""
    cuda = getattr(getattr(torch, "version", None), "cuda", None)
    return {"version": str(getattr(torch, "__version__", "")), "cuda": cuda and str(cuda)}
