"""A process of a command of the user's that has imported torch: a rank as soon as it trains.

Nothing here knows the main script: it runs as the user's launcher started it. What is told of its
end is what Python itself keeps of an exception that nobody caught.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Optional

from . import facts, launches
from .process import ProcessLog, arm, built
from .visit import MARK


class Guest:
    """The probe's stay in this process.

    Args:
        stage: the session's ``stage`` folder.
    """

    def __init__(self, stage: str) -> None:
        self._log = ProcessLog(Path(stage).parent / "ranks")

    def arrive(self, torch: ModuleType, is_rank: bool) -> None:
        """Arm the probe.

        Args:
            torch: the module.
            is_rank: whether a launcher has started this process as a rank; others say nothing of
                themselves before they train.
        """
        if is_rank:
            self._open(facts.identity())
        probe = arm(torch, self._log)
        if probe is not None:
            probe.identify = lambda: self._identify(torch)
            probe.ranks_may_fork = True

    def leave(self, pid: int) -> None:
        """At the end of a process that is a rank; not of one that was forked from `pid`."""
        if os.getpid() != pid:
            return
        if not self._log.is_open:  # it has never imported torch
            self._open(facts.identity())
        error = getattr(sys, "last_value", None)
        code = None
        if isinstance(error, BaseException):
            self._log.write_exception(error)
            code = 130 if isinstance(error, KeyboardInterrupt) else 1
        self._log.write("exit", code=code)

    def _open(self, who: Dict[str, Any]) -> None:
        self._log.open(who, launch=launches.key_of(who["world_size"]))

    def _identify(self, torch: Any) -> Optional[Dict[str, Any]]:
        """Which rank this is, at its first backward; None where it is none."""
        if torch.utils.data.get_worker_info() is not None:
            return None
        who = facts.identity()
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            who.update(rank=distributed.get_rank(), world_size=distributed.get_world_size())
            if not os.environ.get("LOCAL_RANK"):
                who["local_rank"] = who["rank"]
        elif self._works_for_a_rank():
            return None
        if not self._log.is_open:
            self._open(who)
            self._log.write("torch", **built(torch))
            atexit.register(self.leave, os.getpid())
        try:
            key = launches.key_of(who["world_size"])
            restart = launches.restarted()
            joined = launches.join(self._log.directory, key, who["rank"], restart)
            who.update(attempt=joined.attempt, first_attempt=joined.first)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # most likely there is but one
        return who

    def _works_for_a_rank(self) -> bool:
        """Whether a rank that trains by itself has started this process."""
        pid = os.environ.get(MARK, "").partition(":")[0]
        if not pid or pid == str(os.getpid()):
            return False
        of_it = self._log.directory.glob("*-{}.jsonl".format(pid))
        return any(not file.name.endswith(".process.jsonl") for file in of_it)


_guest: Optional[Guest] = None


def arrive(stage: str, torch: ModuleType, is_rank: bool) -> None:
    """As `Guest.arrive`, of this process's only one."""
    _of(stage).arrive(torch, is_rank)


def leave(stage: str, pid: int) -> None:
    """As `Guest.leave`, of this process's only one."""
    _of(stage).leave(pid)


def _of(stage: str) -> Guest:
    global _guest
    _guest = _guest or Guest(stage)
    return _guest
