"""The sampler process: GPUs and the host, once a second, into ``devices.jsonl``.

It takes at most 1 % of a core, and ends with the process that started it. SIGTERM and SIGINT end
it; SIGUSR1, sent after the header has been written, makes it write a ``processes`` record at once.
Its record format is in `torchtop.session.records`.

Of what is older than two hours it keeps one tick in 20 s, with the listing of processes that came
with it, and those at which the reasons that throttle a GPU have changed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtop.devices.gpus import GuardedGpus
from torchtop.devices.host import HostSampler, memory_total_bytes
from torchtop.devices.ranks import RankWatcher
from torchtop.session.records import Appender
from torchtop.session.room import RESERVE_BYTES
from torchtop.session.thinning import Thinning, Told

SHORTEST_INTERVAL_S = 0.2
"""Below this the driver itself is loaded: its calls serialise with those of the training."""

PROCESSES_EVERY_S = 5.0
ENERGY_EVERY_S = 10.0

_SPARSE_NS = 19_500_000_000
"""Every other tick with energy and processes, where one comes a little early after a late one."""

_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGUSR1})
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Options:
    """What the command line asks for; see `main`."""

    output: Path
    interval_s: float
    ranks_dir: Path | None
    parent: int | None
    any_thread: bool
    count: int | None


@dataclass(frozen=True)
class _Moment:
    """A tick and, up to the next one, the processes.

    Attributes:
        start: where it begins in the file.
        mono_ns: its time.
        told: what the GPUs have told of their state.
        energy: whether the energy counters were read.
    """

    start: int
    mono_ns: int
    told: Told
    energy: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Sample until told to stop.

    Args:
        argv: the arguments; the process's own when omitted.

    Returns:
        0 when it was told to stop, 1 when the file could not be written.
    """
    options = _parse(argv)
    # Signals are taken where the loop waits (sigtimedwait), so none can interrupt a record.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    if options.parent is not None and not options.any_thread:
        # First ask for the signal, then look: a parent that ended in between is seen either way.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != options.parent:
            return 0
    gpus = GuardedGpus()
    try:
        sampler = Sampler(options, gpus)
    except OSError as error:
        print(f"torchtop sampler: cannot create {options.output}: {error}", file=sys.stderr)
        return 1
    try:
        sampler.run()
    except OSError:  # the file has gone: nobody is left to tell
        return 1
    finally:
        sampler.close()
    return 0


class Sampler:
    """The loop. Ticks fall on an absolute schedule; one that was missed is left out.

    Args:
        options: what to sample, and where to.
        gpus: the opened GPUs.
        thinning: makes old ticks fewer; as this module says without.

    Raises:
        OSError: the output exists already or cannot be created.
    """

    def __init__(
        self, options: Options, gpus: GuardedGpus, thinning: Thinning | None = None
    ) -> None:
        self._options = options
        self._gpus = gpus
        self._host = HostSampler()
        self._ranks = RankWatcher(options.ranks_dir)
        inventory = gpus.inventory
        self._appender = Appender(
            options.output,
            "sampler",
            reserve_bytes=RESERVE_BYTES,
            driver=inventory.driver,
            nvml_error=inventory.error,
            gpus=[gpu.header() for gpu in inventory.gpus],
            cpu_count=os.cpu_count(),
            memory_total_bytes=memory_total_bytes(),
            tick_s=options.interval_s,
        )
        self._file = _identity(options.output)
        self._thinning = thinning or Thinning(options.output, sparse_ns=_SPARSE_NS)
        self._moment: _Moment | None = None

    def run(self) -> None:
        """Write records until a signal, the parent's end, or the asked-for count of ticks.

        Raises:
            OSError: the file cannot be written any more, or has gone.
        """
        start_s = time.monotonic()
        processes_at_s = energy_at_s = start_s
        ticks = 0
        while True:
            now_s = time.monotonic()
            energy = now_s >= energy_at_s
            self._tick(energy=energy)
            ticks += 1
            if energy:
                energy_at_s = _next(start_s, ENERGY_EVERY_S, now_s)
            if now_s >= processes_at_s:
                self._processes()
                processes_at_s = _next(start_s, PROCESSES_EVERY_S, now_s)
            if ticks == self._options.count:
                return
            if self._wait(_next(start_s, self._options.interval_s, time.monotonic())):
                break
        if self._gpus.inventory.gpus:
            self._tick(energy=True)  # the energy counter's last word

    def close(self) -> None:
        """Close the file and let the driver go."""
        self._appender.close()
        self._gpus.close()

    def _wait(self, until_s: float) -> bool:
        """Wait for the next tick; whether to stop instead."""
        while True:
            left_s = until_s - time.monotonic()
            signalled = signal.sigtimedwait(_SIGNALS, max(0.0, left_s))
            if signalled is None:
                return self._is_orphan()
            if signalled.si_signo != signal.SIGUSR1:
                return True
            self._processes()

    def _is_orphan(self) -> bool:
        return self._options.parent is not None and os.getppid() != self._options.parent

    def _tick(self, *, energy: bool) -> None:
        mono_ns = time.monotonic_ns()
        if _identity(self._options.output) != self._file:
            raise FileNotFoundError(self._options.output)
        limit_s = 0.8 * self._options.interval_s
        gpus = self._gpus.sample(mono_ns / 1e9, energy=energy, limit_s=limit_s)
        self._thin(_Moment(self._appender.written_bytes, mono_ns, _state(gpus), energy))
        self._write("tick", mono_ns, gpus=gpus, host=self._host.sample())

    def _thin(self, begins: _Moment) -> None:
        """A tick is about to be written: give up what has become old with the one before."""
        ended, self._moment = self._moment, begins
        if ended is not None:
            with contextlib.suppress(OSError):  # it is larger, and as good
                self._thinning.wrote(
                    ended.start, begins.start, ended.mono_ns, ended.told, stands=ended.energy
                )

    def _processes(self) -> None:
        mono_ns = time.monotonic_ns()
        now_s = mono_ns / 1e9
        gpus = self._gpus.processes(now_s)
        self._write("processes", mono_ns, gpus=gpus, ranks=self._ranks.sample(now_s))

    def _write(self, kind: str, mono_ns: int, **fields: Any) -> None:
        """Append a record; on a full disk it is left out, and its number shows that."""
        try:
            self._appender.write(kind, mono_ns, **fields)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise


def _state(gpus: Mapping[str, Sequence[Any]]) -> Told:
    """What throttles each GPU, by its place; None where it does not say, as when it is lost."""
    return {
        place: None if reasons is None else tuple(reasons)
        for place, reasons in enumerate(gpus.get("throttle", ()))
    }


def _next(start_s: float, every_s: float, now_s: float) -> float:
    """The first moment of a schedule that lies after now."""
    return start_s + every_s * ((now_s - start_s) // every_s + 1)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a path names; None when it names none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _parse(argv: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="torchtop.devices.sampler", description="Sample GPUs and the host into a file."
    )
    parser.add_argument("--output", type=Path, required=True, help="the devices.jsonl to create")
    parser.add_argument(
        "--interval", type=_interval, default=1.0, metavar="S", help="seconds between ticks (1)"
    )
    parser.add_argument("--ranks-dir", type=Path, help="a session's ranks/ folder, to watch")
    # The kernel sends the signal when the *thread* that started this process ends.
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this process does")
    parser.add_argument(
        "--any-thread",
        action="store_true",
        help="look for the parent at each tick instead: it started this from a passing thread",
    )
    parser.add_argument("--count", type=int, metavar="N", help="end after N ticks")
    found = parser.parse_args(argv)
    return Options(
        output=found.output,
        interval_s=found.interval,
        ranks_dir=found.ranks_dir,
        parent=found.parent,
        any_thread=found.any_thread,
        count=found.count,
    )


def _interval(text: str) -> float:
    seconds = float(text)
    if not SHORTEST_INTERVAL_S <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"must be {SHORTEST_INTERVAL_S} to 3600 seconds: {text}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
