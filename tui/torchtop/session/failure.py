"""How a run failed, told to a person: where, its traceback without torchtop's frames, what to try.

A pure function of the supervisor's ``exit`` record and of what was started. What it gives is data
of others, as it was recorded: whoever shows it makes it harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchtop.session.stacks import is_library, is_ours, shorten

IN_ORDER = frozenset({"completed", "stopped", "duration", "steps"})
"""Exit causes that are no failure."""

_WORDS = {
    "exception": "raised an exception",
    "signal": "was ended by a signal",
    "exit_code": "left with a failure status",
    "out_of_memory": "ran out of GPU memory",
    "host_out_of_memory": "ran out of host memory",
    "disk_full": "found the disk full",
    "loader_killed": "lost a data-loader worker",
    "timeout": "waited in a collective operation until it timed out",
    "launcher_killed": "torchrun was killed from outside",
    "launch_failed": "could not be launched",
    "lost": "the supervisor is gone and left no end",
}
"""For records without a message."""

_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+)(?:, in (?P<function>.*))?')
_LOG_PREFIX = re.compile(r"^\[rank\d+\]: ?")
_LOG_LINES = 12


@dataclass(frozen=True)
class Failure:
    """What is told of a failure.

    Attributes:
        headline: which rank was first, and why.
        where: the script's own innermost line, or None where there is no traceback.
        traceback: its lines; torchtop's own frames are left out.
        log: the last lines of that rank's standard error that are not in the traceback.
        advice: what to try, the most likely first.
    """

    headline: str
    where: str | None
    traceback: tuple[str, ...]
    log: tuple[str, ...]
    advice: tuple[str, ...]


def failure_of(exit: Mapping[str, Any], meta: Mapping[str, Any]) -> Failure:
    """What an ``exit`` record tells.

    Args:
        exit: the record, or what is left of it.
        meta: ``session.json``.
    """
    cwd = str(meta.get("cwd") or "")
    lines = without_own_frames(str(exit.get("traceback") or ""))
    trace = tuple(line for line in lines if line.strip())
    in_trace = {line.strip() for line in trace}
    log = [str(line) for line in _list(exit.get("log_tail")) if str(line).strip()]
    log = [line for line in log if _LOG_PREFIX.sub("", line).strip() not in in_trace]
    return Failure(
        headline=_headline(exit),
        where=_where(trace, cwd),
        traceback=trace,
        log=tuple(without_own_frames("\n".join(log)))[-_LOG_LINES:],
        advice=tuple(_advice(exit, meta, "\n".join([*trace, *log]))),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _headline(exit: Mapping[str, Any]) -> str:
    message = str(exit.get("message") or "")
    cause, rank = str(exit.get("cause") or "failed"), exit.get("rank")
    who = f"rank {rank} " if isinstance(rank, int) else ""
    if message and who in message:
        return message
    how = exit.get("signal") or exit.get("code")
    what = f": {message}" if message else "" if how is None else f" ({how})"
    return f"{who}{_WORDS.get(cause, cause)}{what}"


def without_own_frames(text: str) -> list[str]:
    """The lines of a traceback without the frames of torchtop, whatever stands below them."""
    kept: list[str] = []
    skipping = False
    for line in text.splitlines():
        frame = _FRAME.match(_LOG_PREFIX.sub("", line))
        if frame:
            skipping = is_ours(frame["file"])
        elif skipping and not _LOG_PREFIX.sub("", line).startswith("    "):
            skipping = False  # the source line and its marks are over
        if not skipping:
            kept.append(line)
    return kept


def _where(trace: tuple[str, ...], cwd: str) -> str | None:
    """The innermost line of the user's own; of a library where there is none of them."""
    found = [frame for line in trace if (frame := _FRAME.match(line))]
    own = [frame for frame in found if not is_library(frame["file"])]
    last = (own or found)[-1:]
    if not last:
        return None
    frame = last[0]
    told = f"{shorten(frame['file'], cwd)}:{frame['line']}"
    function = frame["function"]
    return f"{told} in {function}" if function and function != "<module>" else told


_RULES: tuple[tuple[str, str], ...] = (
    (
        r"Expected to have finished reduction in the prior iteration",
        "DistributedDataParallel(..., find_unused_parameters=True), if the loss does not use "
        "every parameter",
    ),
    (
        r"EOF when reading a line|BdbQuit",
        "debug in one process: python SCRIPT; of a live run, torchtop stacks shows where it stands",
    ),
    (
        r"Address already in use|EADDRINUSE",
        "do not set MASTER_PORT or a port of your own in the script: torchrun has chosen one",
    ),
    (
        r"invalid device ordinal",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])): a rank sees only its node's GPUs",
    ),
    (
        r"process group has not been initialized",
        "torch.distributed.init_process_group() must come before",
    ),
    (
        r"NCCL (?:WARN|error)|ncclSystemError|ncclInternalError|ncclInvalidUsage",
        "NCCL_DEBUG=INFO in the environment has NCCL say why, in the logs",
    ),
    (
        r"device-side assert triggered|illegal memory access",
        "CUDA_LAUNCH_BLOCKING=1 in the environment has the traceback name the call that is wrong",
    ),
    (
        r"insufficient shared memory|unable to (?:open|allocate) shared memory|Bus error",
        "/dev/shm is too small for the loader's workers: in a container --shm-size=8g or "
        "--ipc=host, else fewer workers",
    ),
)
"""What the text of a failure calls for. The spellings are those of PyTorch 2.1 to 2.14."""

_BY_CAUSE: dict[str, tuple[str, ...]] = {
    "out_of_memory": (
        "a smaller batch; or accumulate gradients over micro-batches, which keeps its effect",
        "mixed precision (torch.autocast) or activation checkpointing",
        "where much is reserved but unallocated: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    "host_out_of_memory": (
        "fewer loader workers, or a smaller prefetch_factor: each worker holds batches of its own",
        "journalctl -k tells what the kernel has killed",
    ),
    "disk_full": (
        "df -h tells which disk is full; torchtop rm --older-than 7d frees old sessions",
    ),
    "loader_killed": (
        "run once with num_workers=0: the error then comes in the rank itself",
        "journalctl -k tells whether the kernel wanted memory; fewer workers take less",
    ),
    "timeout": (
        "look for a collective that not all ranks call: in `if rank == 0:`, or after a loop that "
        "one rank leaves early",
        "before the next timeout, torchtop stacks shows where each rank stands",
    ),
    "launcher_killed": (
        "ask who ends processes here: a job scheduler's limit, systemd-oomd, a log-out that ends "
        "sessions (KillUserProcesses), or a person",
    ),
    "launch_failed": ("torchtop doctor tells whether this interpreter can train",),
    "lost": ("torchtop stop ends what it has left running",),
}

_BY_SIGNAL = {
    "SIGKILL": "journalctl -k tells whether the kernel wanted memory; else someone, or a limit of "
    "the machine, has killed it",
    "SIGSEGV": "a crash in native code: PYTHONFAULTHANDLER=1 in the environment names the line",
    "SIGABRT": "native code gave up: the last lines of its log tell why",
    "SIGBUS": "/dev/shm or a mapped file is gone or full: in a container --shm-size=8g",
    "SIGTERM": "somebody, or a job scheduler, has ended it from outside",
}


def _advice(exit: Mapping[str, Any], meta: Mapping[str, Any], text: str) -> Iterator[str]:
    """What to try, by the text of the failure, its cause, its signal or its status."""
    cause, code = str(exit.get("cause")), exit.get("code")
    said = f"{exit.get('message')}\n{text}"
    yield from (told for pattern, told in _RULES if re.search(pattern, said))
    yield from _missing(said, meta)
    yield from _BY_CAUSE.get(cause, ())
    if cause == "signal":
        yield from filter(None, [_BY_SIGNAL.get(str(exit.get("signal")))])
    elif cause == "exit_code" and code == 0:
        yield (
            "give all ranks the same number of batches: drop_last=True, a DistributedSampler, or "
            "torch.distributed.algorithms.Join"
        )
    elif cause == "exit_code" and re.search(r"usage:|error: .*argument", text):
        yield (
            "the script has refused its arguments; its own go behind its name: "
            "torchtop run train.py --lr 0.1"
        )
    elif cause == "exit_code":
        yield "the script left by itself (sys.exit, os._exit): its last lines tell why"


def _missing(said: str, meta: Mapping[str, Any]) -> Iterator[str]:
    """What to do about a module or a file that is not there."""
    if module := re.search(r"No module named '([\w.]+)'", said):
        python = meta.get("python") or "the interpreter that trains"
        name = module[1].partition(".")[0]
        yield f"install {name} for {python}, or train with another one: --python PATH"
    elif re.search(r"FileNotFoundError|No such file or directory", said) and meta.get("cwd"):
        yield f"paths that do not begin with / start at {meta['cwd']}"
