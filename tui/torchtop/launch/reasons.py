"""What the last words of a process mean: an exception's text, or what NCCL wrote before it died.

Pure functions over text that somebody else's code has written. The spellings are those of PyTorch
2.1 to 2.14 and its gloo and NCCL.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

_GPU_MEMORY = re.compile(r"CUDA (?:error: )?out of memory")
_HOST_MEMORY = re.compile(
    r"DefaultCPUAllocator: (?:can't|not enough) .*memory|Cannot allocate memory"
)
_DISK = re.compile(r"No space left on device|Disk quota exceeded")
_LOADER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]+)\) "
    r"(?:is killed by signal: (?P<signal>[A-Za-z ]+)|exited unexpectedly)"
)
_NOT_JOINED = re.compile(r"Ranks? (?P<ranks>[\d, ]+) failed to pass monitoredBarrier")
_GLOO_TIMEOUT = re.compile(r"Timed out waiting (?P<ms>\d+)ms for (?:recv|send) operation")
_NCCL_TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout: \w+\((?P<what>[^)]*(?:\)=[^)]*)?)\)"
)
_NCCL_FIELD = re.compile(r"(SeqNum|OpType|Timeout\(ms\))=(\w+)")

_SIGNALS = {
    "Killed": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Bus error": signal.SIGBUS,
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
}
"""As strsignal(3) spells them."""


@dataclass(frozen=True)
class Reason:
    """Why a rank failed.

    Attributes:
        cause: one of `records.CAUSES`.
        does: what the rank did, as the words that follow its name.
        hint: what to do about it, or empty.
        by_sigkill: whether something was ended by SIGKILL, which the kernel also sends for want of
            memory.
    """

    cause: str
    does: str
    hint: str = ""
    by_sigkill: bool = False


def of_exception(kind: str, message: str) -> Reason:
    """What an exception of a script means.

    Args:
        kind: the name of its class.
        message: its text.
    """
    first = message.strip().splitlines()[0] if message.strip() else ""
    said = f"{kind}: {first}" if first else kind
    name = kind.rpartition(".")[2]
    if name == "OutOfMemoryError" or _GPU_MEMORY.match(first):
        return Reason("out_of_memory", f"ran out of GPU memory: {said}")
    if name == "MemoryError" or _HOST_MEMORY.search(message):
        return Reason("host_out_of_memory", f"ran out of host memory: {said}")
    if _DISK.search(message):
        return Reason("disk_full", f"found the disk full: {said}")
    if loader := _LOADER.search(message):
        return _of_loader(loader)
    if (timeout := of_timeout(message)) is not None:
        return timeout
    if (name == "EOFError" and "reading a line" in message) or name == "BdbQuit":
        hint = "ranks have no terminal: take input() and breakpoint() out"
        return Reason("exception", f"failed: {said}", hint)
    return Reason("exception", f"failed: {said}")


def _of_loader(found: re.Match[str]) -> Reason:
    word = (found["signal"] or "").strip()
    signum = _SIGNALS.get(word)
    by = signum.name if signum is not None else word
    worker = f"lost a data-loader worker (pid {found['pids'].strip()})"
    if by:
        worker += f", which was ended by {by}"
    hint = ""
    if signum == signal.SIGBUS:
        hint = "/dev/shm is full: in a container set --shm-size, or use fewer workers"
    return Reason("loader_killed", worker, hint, by_sigkill=signum == signal.SIGKILL or not by)


def of_timeout(text: str) -> Reason | None:
    """What a text says of a collective operation that timed out; None when it says nothing."""
    if missing := _NOT_JOINED.search(text):
        return Reason("timeout", f"waited in vain at a barrier for rank {missing['ranks'].strip()}")
    if gloo := _GLOO_TIMEOUT.search(text):
        return Reason("timeout", _waited("", int(gloo["ms"])), _JOIN)
    if nccl := _NCCL_TIMEOUT.search(text):
        told = dict(_NCCL_FIELD.findall(nccl["what"]))
        what = f" ({told['OpType']}, number {told.get('SeqNum')})" if "OpType" in told else ""
        limit = told.get("Timeout(ms)", "")
        return Reason("timeout", _waited(what, int(limit) if limit.isdigit() else None), _JOIN)
    return None


_JOIN = "another rank did not join it"


def _waited(what: str, limit_ms: int | None) -> str:
    after = f" after {limit_ms / 1000:g} s" if limit_ms is not None else ""
    return f"waited in a collective operation{what} until it timed out{after}"
