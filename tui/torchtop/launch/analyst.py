"""The analyst: a process that reads a session's records and writes what they mean.

The only place where verdicts are made. It reads what anyone may read and judges by pure functions,
so that `analyse_again` comes to the same from the records of a session that has ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from torchtop.diagnose.analyser import Analyser
from torchtop.diagnose.thresholds import DEFAULT, Thresholds
from torchtop.launch.sweep import sweep
from torchtop.session.locks import is_locked
from torchtop.session.paths import SessionError, SessionPaths, read_json
from torchtop.session.records import Appender, Record
from torchtop.session.room import RESERVE_BYTES
from torchtop.session.tail import SessionTail, Tail
from torchtop.session.thinning import StandIns, Thinning, Told
from torchtop.session.timeline import TimedFile
from torchtop.session.values import child, children

Timed = tuple[int, str, Record]
"""A record, with its time on the session's clock and its file."""

OWN_FILES = ("analysis.jsonl", "history.jsonl")
"""What the analyst writes, and so does not read."""

_TICK_NS = 1_000_000_000
_MINUTE_NS = 60 * _TICK_NS
_READ_BYTES = 1 << 20
"""Of each file at a time: as records they take twenty times as much memory."""
_LONG_NS = 2 * 3600 * _TICK_NS
_WHOLE_NS = 3600 * _TICK_NS
_SPARSE_NS = 10 * _TICK_NS
"""A session longer than two hours is analysed every ten seconds, and its last hour every second:
a minute of its history then has six analyses behind it."""
_QUIET_NS = 300 * _TICK_NS
"""Where no file has a record for so long, the clocks are wrong or there is nothing to judge."""
_ERRORS_SHOWN = 5


class Analyst:
    """Feeds records to the analyser and writes its results down when they are due.

    Nothing that the analyser does with a record can end the analyst: a failure is printed, the
    first few times, and the record passed over.

    Args:
        analysis: where ``analysis`` records go.
        history: where ``minute`` records go.
        now_ns: the present, in monotonic nanoseconds.
        limits: the thresholds of the session.
        thinning: makes old analyses fewer; all are kept without.
    """

    def __init__(
        self,
        analysis: Appender,
        history: Appender,
        now_ns: int,
        limits: Thresholds = DEFAULT,
        thinning: Thinning | None = None,
    ) -> None:
        self._analyser = Analyser(limits)
        self._analysis = analysis
        self._history = history
        self._thinning = thinning
        self._every_ns = _TICK_NS
        self._next_ns = now_ns + _TICK_NS
        self._next_minute_ns = now_ns + _MINUTE_NS
        self._errors = 0

    def feed(self, source: str, record: Record) -> None:
        """Take in one record of the file `source` (relative to the session directory)."""
        try:
            self._analyser.feed(source, record)
        except Exception:
            self._complain(f"a {record.get('kind')} record of {source}")

    def tick(self, now_ns: int) -> None:
        """Write what is due at `now_ns`."""
        if now_ns >= self._next_ns:
            # On the grid: a late tick must not push all later ones back.
            self._next_ns += ((now_ns - self._next_ns) // self._every_ns + 1) * self._every_ns
            self._write(self._analysis, "analysis", now_ns)
        self._write_ended(now_ns)
        if now_ns >= self._next_minute_ns:
            self._next_minute_ns += _MINUTE_NS
            self._write(self._history, "minute", now_ns)

    def analyse_every(self, every_ns: int) -> None:
        """Write an analysis so often from now on; one a second at the start."""
        self._every_ns = every_ns

    def skip_to(self, now_ns: int) -> None:
        """Leave out what would be due before."""
        self._next_ns = max(self._next_ns, now_ns)
        self._next_minute_ns = max(self._next_minute_ns, now_ns)

    def finish(self, now_ns: int) -> None:
        """Write the last analysis and the last, shorter minute."""
        self._write(self._analysis, "analysis", now_ns)
        self._write_ended(now_ns)
        self._write(self._history, "minute", now_ns)

    @property
    def next_ns(self) -> int:
        """When the next analysis is due."""
        return self._next_ns

    def _write_ended(self, now_ns: int) -> None:
        """What is left of launches that others have followed."""
        for minute in self._analyser.ended():
            self._write(self._history, "minute", now_ns, minute)

    def _write(
        self, out: Appender, kind: str, now_ns: int, fields: dict[str, Any] | None = None
    ) -> None:
        """Write a record; what it holds is made now where it is not given."""
        try:
            made = self._analyser.analyse if kind == "analysis" else self._analyser.minute
            fields = made(now_ns) if fields is None else fields
            if fields is not None:
                own = ("kind", "seq", "mono_ns")
                kept = {name: value for name, value in fields.items() if name not in own}
                start = out.written_bytes
                out.write(kind, mono_ns=now_ns, **kept)
                if kind == "analysis" and self._thinning is not None:
                    self._thinning.wrote(start, out.written_bytes, now_ns, _told(kept))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # which the supervisor tells
                self._complain(f"the {kind} record")
        except Exception:
            self._complain(f"the {kind} record")

    def _complain(self, about: str) -> None:
        self._errors += 1
        if self._errors <= _ERRORS_SHOWN:
            with contextlib.suppress(OSError):
                print(f"torchtop: the analyst failed on {about}:", file=sys.stderr)
                traceback.print_exc()


def _told(analysis: Record) -> Told:
    """What makes an analysis one that is kept when it changes: its verdict and its findings."""
    judged = (child(analysis, "verdict"), *children(analysis, "findings"))
    return {"judged": tuple((v.get("kind"), v.get("severity"), v.get("rank")) for v in judged)}


def _limits(paths: SessionPaths) -> Thresholds:
    """The thresholds that the session was started with; those that make no sense are left out."""
    try:
        return Thresholds.from_mapping((read_json(paths.meta) or {}).get("thresholds") or {})
    except (ValueError, AttributeError):
        return DEFAULT


def watch(paths: SessionPaths) -> None:
    """Analyse a session as it runs, until SIGTERM; then read everything once more and finish.

    Raises:
        OSError: the session has an analyst already, or its directory cannot be written.
    """
    # Blocked, not handled: the signal waits for a moment between two records.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    tail = SessionTail(paths, skip=OWN_FILES)
    analysis = Appender(paths.analysis, "analyst", reserve_bytes=RESERVE_BYTES)
    history = Appender(paths.history, "analyst", reserve_bytes=RESERVE_BYTES)
    thinning = Thinning(paths.analysis)
    analyst = Analyst(analysis, history, time.monotonic_ns(), _limits(paths), thinning)
    ending = False
    while not ending:
        wait_s = max(0.0, (analyst.next_ns - time.monotonic_ns()) / 1e9)
        ending = signal.sigtimedwait({signal.SIGTERM, signal.SIGINT}, wait_s) is not None
        for source, record in tail.poll():
            analyst.feed(source, record)
        if not ending:
            analyst.tick(time.monotonic_ns())
    analyst.finish(time.monotonic_ns())
    analysis.close()
    history.close()


def analyse_again(paths: SessionPaths, progress: Callable[[float], None] | None = None) -> None:
    """Make ``analysis.jsonl`` and ``history.jsonl`` of a session anew from its other records.

    Args:
        paths: the session.
        progress: is called with the part that is done (0..1), many times.

    Raises:
        SessionError: it still runs, has no records, or cannot be written.
    """
    if any(is_locked(node.lock) for node in paths.nodes()):
        raise SessionError(f"{paths.id} still runs; analyse it when it has ended")
    files = _record_files(paths)
    clock = _Clock.of(paths, files)
    merged = _merged([_timed(paths, file, clock) for file in files])
    first = next(merged, None)
    if first is None:
        raise SessionError(f"{paths.id} has no records to analyse")
    made = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in _own(paths)}
    try:
        analysis, history = (Appender(partial, "analyst") for partial in made.values())
        analyst = Analyst(analysis, history, first[0], _limits(paths))
        until_ns = max((TimedFile(file).last_ns or 0 for file in files), default=0)
        now_ns = _replay(analyst, chain([first], merged), until_ns, progress)
        analyst.finish(now_ns)
        analysis.close()
        history.close()
        for path, partial in made.items():
            partial.replace(path)
    except OSError as error:
        raise SessionError(f"cannot write in {paths.root}: {error.strerror}") from None
    finally:
        for partial in made.values():
            partial.unlink(missing_ok=True)


def _replay(
    analyst: Analyst,
    records: Iterable[Timed],
    until_ns: int,
    progress: Callable[[float], None] | None,
) -> int:
    """Feed all records in order, with the analyses that are due in between.

    Args:
        analyst: it.
        records: all of them, at least one.
        until_ns: when the last is due, about.
        progress: see `analyse_again`.

    Returns:
        When the last was.
    """
    start_ns = now_ns = -1
    for count, (at_ns, source, record) in enumerate(records):
        if start_ns < 0:
            start_ns = now_ns = at_ns
            if until_ns - start_ns > _LONG_NS:
                analyst.analyse_every(_SPARSE_NS)
        while analyst.next_ns <= at_ns:
            if analyst.next_ns - now_ns > _QUIET_NS:
                analyst.skip_to(at_ns)
            if analyst.next_ns >= until_ns - _WHOLE_NS:
                analyst.analyse_every(_TICK_NS)
            analyst.tick(analyst.next_ns)
        now_ns = max(now_ns, at_ns)
        analyst.feed(source, record)
        if progress is not None and count % 1000 == 0:
            progress((now_ns - start_ns) / max(1, until_ns - start_ns))
    return now_ns


def _own(paths: SessionPaths) -> tuple[Path, Path]:
    return paths.analysis, paths.history


def _record_files(paths: SessionPaths) -> list[Path]:
    # The supervisor's and the samplers' first, as a live reader sees them.
    found = [sorted(paths.root.glob(p)) for p in ("nodes/*/*.jsonl", "ranks/*.jsonl")]
    return [path for group in found for path in group]


class _Clock:
    """The monotonic clocks of several hosts on that of the session's first one.

    Each header pairs its host's clock with wall time; one pair a host is used, so that a wall clock
    that is set right in mid-run does not tear that host's own records apart.
    """

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._offsets: dict[str, int] = {}

    @classmethod
    def of(cls, paths: SessionPaths, files: list[Path]) -> _Clock:
        host = (read_json(paths.meta) or {}).get("host")
        clock: _Clock | None = None
        for file in files:
            header = next(iter(Tail(file).poll(limit=1)), {})
            wall_s, mono_ns = header.get("wall_s"), header.get("mono_ns")
            if isinstance(wall_s, (int, float)) and isinstance(mono_ns, int):
                name = str(header.get("host"))
                clock = clock or cls(str(host or name))
                clock._offsets.setdefault(name, int(wall_s * 1e9) - mono_ns)
        return clock or cls("")

    def shift_ns(self, host: str) -> int:
        """What to add to a time of `host`."""
        own = self._offsets.get(host)
        reference = self._offsets.get(self._reference)
        return 0 if own is None or reference is None else own - reference


def _timed(paths: SessionPaths, file: Path, clock: _Clock) -> Iterator[list[Timed]]:
    """A file's records in order, part by part, each with its time on the session's clock.

    That never goes back.
    """
    source = str(file.relative_to(paths.root))
    tail = Tail(file)
    stand_ins, latest, shift, read_to = StandIns(), 0, 0, -1
    while read_to != tail.offset:
        read_to = tail.offset
        timed: list[Timed] = []
        batch = tail.poll(limit=_READ_BYTES)
        for record in (one for read in batch for one in (*stand_ins.before(read), read)):
            if record["kind"] == "header":
                shift = clock.shift_ns(str(record.get("host")))
            mono_ns = record.get("mono_ns")
            if isinstance(mono_ns, int):
                latest = max(latest, mono_ns + shift)
            timed.append((latest, source, record))
        if timed:  # there is none in the gap of a file that was cut
            yield timed


def _merged(files: Sequence[Iterator[list[Timed]]]) -> Iterator[Timed]:
    """The records of all files in the order of their times; of equal ones, in that of the files."""
    parts: list[list[Timed]] = [[] for _ in files]
    left = list(files)
    while True:
        for place, file in enumerate(files):
            if not parts[place] and file in left:
                parts[place] = next(file, [])
                if not parts[place]:
                    left.remove(file)
        ends = [part[-1][0] for part in parts if part]
        if not ends:
            return
        # Up to where the first part ends, all is at hand.
        counts = [bisect_right(part, min(ends), key=itemgetter(0)) for part in parts]
        taken = [part[:count] for part, count in zip(parts, counts, strict=True)]
        parts = [part[count:] for part, count in zip(parts, counts, strict=True)]
        yield from sorted(chain.from_iterable(taken), key=itemgetter(0))


def main() -> int:
    """The process: ``analyst SESSION_DIR``."""
    paths = SessionPaths(Path(sys.argv[1]))
    watch(paths)
    is_command = (read_json(paths.meta) or {}).get("source") == "command"
    if is_command and not is_locked(paths.node().lock):
        # The supervisor was killed. torchrun's ranks die with it; a command's would train on.
        sweep(paths)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
