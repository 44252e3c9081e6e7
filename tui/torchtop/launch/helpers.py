"""The supervisor's own helpers, the sampler and the analyst: their command lines and their ends."""

from __future__ import annotations

import os
import signal
import time

from torchtop.launch import boot, processes
from torchtop.launch.children import Child
from torchtop.session.paths import NodePaths, SessionPaths
from torchtop.session.tail import Tail

_POLL_S = 0.05


def commands(paths: SessionPaths, node: NodePaths) -> dict[str, list[str]]:
    """The command lines of the helpers by role."""
    sampler = {
        "--output": str(node.devices),
        "--ranks-dir": str(paths.ranks),
        "--parent": str(os.getpid()),
    }
    flags = [word for pair in sampler.items() for word in pair]
    return {
        "sampler": boot.command("torchtop.devices.sampler", *flags),
        "analyst": boot.command("torchtop.launch.analyst", str(paths.root)),
    }


def end(child: Child, limit_s: float) -> None:
    """End a helper with SIGTERM and, when it takes too long, with SIGKILL."""
    processes.send(child.pid, child.start_ticks, signal.SIGTERM)
    if not _wait(child, limit_s):
        processes.send(child.pid, child.start_ticks, signal.SIGKILL)
        _wait(child, 1.0)


def _wait(child: Child, limit_s: float) -> bool:
    until = time.monotonic() + limit_s
    while processes.is_running(child.pid, child.start_ticks):
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)
    return True


def wait_for_free_gpus(
    sampler: Child, node: NodePaths, pids: set[int], limit_s: float
) -> list[int]:
    """Wait until the driver no longer lists processes of this session.

    A process that has ended keeps its GPU memory for a moment, and the next run would find too
    little. SIGUSR1 has the sampler write its process list at once instead of every 5 s.

    Args:
        sampler: who can tell.
        node: where its records are.
        pids: this session's processes, all ended.
        limit_s: how long to wait.

    Returns:
        The pids that still hold memory when the time is up; empty when all is free.
    """
    tail = Tail(node.devices)
    asked_ns = time.monotonic_ns()
    until = time.monotonic() + limit_s
    holding: list[int] = []
    while not tail.poll(limit=1) and time.monotonic() < until:
        # Before its header is there the sampler does not know that signal, and would die of it.
        if not processes.is_running(sampler.pid, sampler.start_ticks):
            return []
        time.sleep(_POLL_S)
    while time.monotonic() < until:
        if not processes.send(sampler.pid, sampler.start_ticks, signal.SIGUSR1):
            return []
        again = time.monotonic() + 1.0
        while time.monotonic() < min(again, until):
            for record in tail.poll():
                if record["kind"] == "processes" and record.get("mono_ns", 0) > asked_ns:
                    holding = _listed(record.get("gpus"), pids)
                    if not holding:
                        return []
            time.sleep(_POLL_S)
    return holding


def _listed(gpus: object, pids: set[int]) -> list[int]:
    listed: set[int] = set()
    for entries in gpus if isinstance(gpus, list) else ():
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("process_pid"), int):
                listed.add(entry["process_pid"])
    return sorted(listed & pids)
