"""A session's records, folded into what it looks like at one moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from torchtop.session.folds import (
    DEVICE_METRICS,
    SERIES_SECONDS,
    NodeFold,
    RankFold,
    at,
    of_last_launch,
)
from torchtop.session.launches import last_launch, launch_of
from torchtop.session.records import Record
from torchtop.session.snapshot import Gpu, Host, Point, Rank, Snapshot, Status
from torchtop.session.timeline import is_of_later

__all__ = [
    "DEVICE_METRICS",
    "SERIES_SECONDS",
    "Gpu",
    "Host",
    "Point",
    "Rank",
    "SessionState",
    "Snapshot",
    "Status",
]

_GAP_NS = 120_000_000_000
"""The analyst writes once a second: with more between two analyses, some were not read."""

_MINUTES = 3000
"""Two days: the verdicts of longer runs are told from there on."""

_NEAR = 64
"""Events among which one that another rank has told is looked for."""

_SCALARS = 8
"""Scalars that are kept as series; a script may log hundreds."""


class SessionState:
    """Folds records, in any order between files, into snapshots.

    Args:
        meta: the contents of ``session.json``; empty for the idle view of a machine.
    """

    def __init__(self, meta: Mapping[str, Any] | None = None) -> None:
        self.meta: Mapping[str, Any] = meta or {}
        self.last_ns = 0
        self.malformed = 0
        self._first_ns: int | None = None
        self._nodes: dict[str, NodeFold] = {}
        self._ranks: dict[int, RankFold] = {}
        self._by_source: dict[str, int] = {}
        self._points: deque[Point] = deque(maxlen=SERIES_SECONDS)
        self._recent: deque[float] = deque(maxlen=2000)
        self._scalars: dict[str, deque[float | None]] = {}
        self._verdicts: deque[tuple[int, str, str]] = deque(maxlen=200)
        self._by_minute: deque[tuple[int, int, str, str]] = deque(maxlen=_MINUTES)
        self._unread = (0, 0)
        """Between these two moments analyses were not read; minutes tell of the verdicts there."""
        self._findings: deque[tuple[int, str, str]] = deque(maxlen=200)
        self._standing: dict[str, str] = {}
        self._minutes: list[dict[str, Any]] = []
        self._events: deque[dict[str, Any]] = deque(maxlen=500)
        self._analysis: dict[str, Any] | None = None
        self._exit: dict[str, Any] | None = None
        self._end: dict[str, Any] | None = None
        self._stopping = False

    def apply(self, source: str, record: Record) -> None:
        """Take in one record of the file `source` (a path relative to the session directory).

        A record that has not the shape of its kind is counted in `malformed` and passed over.
        """
        try:
            self._apply(source, record)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self.malformed += 1
            return
        mono_ns = record.get("mono_ns")
        if isinstance(mono_ns, int) and not is_of_later(record):
            self.last_ns = max(self.last_ns, mono_ns)

    def _apply(self, source: str, record: Record) -> None:
        if source.startswith("ranks/"):
            self._apply_rank(source, record)
        elif source.endswith("devices.jsonl"):
            self._nodes.setdefault(source.split("/")[1], NodeFold()).apply(record)
        elif source.endswith("events.jsonl"):
            self._apply_event(source.split("/")[1], record)
        elif record["kind"] == "analysis":
            self._apply_analysis(record)
        elif record["kind"] == "minute":
            self._apply_minute(record)

    def _apply_rank(self, source: str, record: Record) -> None:
        if record["kind"] == "header" and isinstance(record.get("rank"), int):
            self._by_source[source] = record["rank"]
        number = self._by_source.get(source)
        if number is None:
            return
        rank = self._ranks.setdefault(number, RankFold())
        if source.endswith(".process.jsonl"):
            rank.apply_process(source, record)
        else:
            rank.apply(source, record)
            if record["kind"] in ("annotation", "not_finite"):
                self._note(number, record)

    def _note(self, rank: int, record: Record) -> None:
        """An event of a rank's; what all of them tell at the same step is told once."""
        same = ("kind", "step", "text", "value")
        for event in list(self._events)[-_NEAR:]:
            if all(event.get(key) == record.get(key) for key in same):
                return
        self._events.append({**record, "rank": rank})

    def _apply_event(self, host: str, record: Record) -> None:
        kind = record["kind"]
        if kind == "header":
            self._first_ns = min(record["mono_ns"], self._first_ns or record["mono_ns"])
        self._events.append({**record, "host": host})
        if kind == "stop":
            self._stopping = True
        elif kind == "exit":
            self._exit = record
        elif kind == "end":
            self._end = record

    def _apply_minute(self, record: Record) -> None:
        if self._minutes and launch_of(self._minutes[-1]) != launch_of(record):
            self._minutes.clear()
        self._minutes.append(record)
        begin, end = record.get("from_ns"), record.get("to_ns")
        held = [v for v in record.get("verdicts") or () if v.get("seconds")]
        if held and isinstance(begin, int) and isinstance(end, int):
            longest = max(held, key=lambda verdict: float(verdict["seconds"]))
            told = (str(longest.get("kind")), str(longest.get("severity")))
            self._by_minute.append((begin, end, *told))

    @property
    def _verdict_changes(self) -> tuple[tuple[int, str, str], ...]:
        """The changes of the whole run: where no analyses were read, to the minute."""
        since, until = self._unread
        told = [(m[0], *m[2:]) for m in self._by_minute if since <= m[0] and m[1] <= until]
        merged: list[tuple[int, str, str]] = []
        for change in sorted([*told, *self._verdicts]):
            if not merged or merged[-1][1:] != change[1:]:
                merged.append(change)
        return tuple(merged)

    def _with_limit(self, record: Record) -> Record:
        """An analysis with the step limit of the launch, where the script has told no total."""
        progress, limit = record.get("progress") or {}, self.meta.get("steps")
        if progress.get("total_steps") is not None or not isinstance(limit, int):
            return record
        left = limit - 1 - int(record.get("step") or 0)
        mean_ms = (record.get("step_ms") or {}).get("mean")
        eta = None if mean_ms is None else max(0.0, left * mean_ms / 1e3)
        return {**record, "progress": {**progress, "total_steps": limit, "eta_s": eta}}

    def _apply_analysis(self, record: Record) -> None:
        record = self._with_limit(record)
        phases = record.get("phases") or {}
        throughput = record.get("throughput") or {}
        point = Point(
            mono_ns=record["mono_ns"],
            step=record.get("step"),
            step_ms=(record.get("step_ms") or {}).get("mean"),
            samples_per_s=throughput.get("samples_per_s"),
            tokens_per_s=throughput.get("tokens_per_s"),
            data_share=(phases.get("data") or {}).get("share"),
            comm_share=(phases.get("exposed_comm") or {}).get("share"),
        )
        standing = dict(map(_finding, record.get("findings") or ()))
        # Only now: a record that has not this shape has raised, and changes nothing.
        before = self._analysis["mono_ns"] if self._analysis else 0
        if point.mono_ns - before > _GAP_NS:
            self._unread = (before, point.mono_ns)
            self._clear_series()
        elif launch_of(record) != launch_of(self._analysis or record):
            self._clear_series()
        self._analysis = record
        self._points.append(point)
        self._recent.extend(record.get("recent_step_ms") or ())
        self._apply_scalars(record.get("scalars") or {})
        verdict = record.get("verdict") or {}
        change = (str(verdict.get("kind")), str(verdict.get("severity")))
        told = verdict and record.get("steps") and not record.get("warming_up")
        if told and (not self._verdicts or self._verdicts[-1][1:] != change):
            self._verdicts.append((record["mono_ns"], *change))

        changes = [c for c in standing.items() if c not in self._standing.items()]
        changes += [(kind, "") for kind in self._standing if kind not in standing]
        self._findings.extend((record["mono_ns"], *change) for change in changes)
        self._standing = standing

    def _clear_series(self) -> None:
        self._points.clear()
        self._recent.clear()
        self._scalars.clear()

    def _apply_scalars(self, scalars: Mapping[str, Any]) -> None:
        for name in list(scalars)[:_SCALARS]:
            if name not in self._scalars and len(self._scalars) < _SCALARS:
                missing = [None] * (len(self._points) - 1)
                self._scalars[name] = deque(missing, maxlen=SERIES_SECONDS)
        for name, series in self._scalars.items():
            series.append(scalars.get(name))

    def snapshot(
        self,
        now_ns: int | None = None,
        lost: bool = False,
        bad_lines: int = 0,
        newer_schema: bool = False,
    ) -> Snapshot:
        """The session as it looks at `now_ns` (the last record's time when omitted).

        Args:
            now_ns: monotonic nanoseconds of the host that wrote the records.
            lost: there is no supervisor although the session has not ended.
            bad_lines: lines that the reader had to skip.
            newer_schema: a file is of a newer torchtop.
        """
        now = max(now_ns or 0, self.last_ns)
        until = self._end["mono_ns"] if self._end else now
        started = self._first_ns if self._first_ns is not None else until
        analysis = self._analysis
        ranks = of_last_launch(self._ranks)
        launch = last_launch(rank.header for rank in ranks.values())
        return Snapshot(
            meta=self.meta,
            status=self._status(lost),
            now_ns=now,
            elapsed_s=max(0, until - started) / 1e9,
            analysis=analysis,
            analysis_age_s=(now - analysis["mono_ns"]) / 1e9 if analysis else None,
            points=tuple(self._points),
            recent_step_ms=tuple(self._recent),
            minutes=tuple(m for m in self._minutes if launch_of(m) >= launch),
            gpus=tuple(self._gpus(now)),
            hosts=tuple(self._hosts(now)),
            ranks=tuple(self._rank(n, r, now) for n, r in ranks.items()),
            events=tuple(self._events),
            exit=self._exit,
            bad_lines=bad_lines + self.malformed,
            newer_schema=newer_schema,
            scalar_series={name: tuple(values) for name, values in self._scalars.items()},
            verdict_changes=self._verdict_changes,
            finding_changes=tuple(self._findings),
        )

    def _status(self, lost: bool) -> Status:
        if not self.meta:
            return "idle"
        if self._end:
            status: Status = self._end.get("status", "done")
            return status
        if lost:
            return "lost"
        if self._stopping:
            return "stopping"
        return "running" if self._analysis and self._analysis.get("steps") else "starting"

    @property
    def _over_ns(self) -> int | None:
        """When training ended; from then on a tick shows a machine that idles. None while it runs.

        Of a run on several nodes only as far as their clocks agree.
        """
        if not self._end:
            return None
        asked = [e["mono_ns"] for e in self._events if e["kind"] in ("stop", "exit")]
        left = [rank.exited_ns for rank in of_last_launch(self._ranks).values()]
        return min([*asked, *filter(None, left)], default=None)

    def _gpus(self, now: int) -> list[Gpu]:
        by_uuid: dict[str, list[int]] = {}
        for number, rank in of_last_launch(self._ranks).items():
            uuid = (rank.header.get("device") or {}).get("uuid")
            if uuid:
                by_uuid.setdefault(uuid, []).append(number)
        gpus = []
        for host, node in sorted(self._nodes.items()):
            metrics = node.tick_before(self._over_ns).get("gpus") or {}
            for i, facts in enumerate(node.header.get("gpus") or []):
                series = node.gpu_series[i]
                gpus.append(
                    Gpu(
                        host=host,
                        index=facts.get("index", i),
                        facts=facts,
                        now={name: at(values, i) for name, values in metrics.items()},
                        series={name: tuple(values) for name, values in series.items()},
                        processes=tuple(at(node.processes.get("gpus"), i) or ()),
                        age_s=_age(node.tick, now),
                        ranks=tuple(sorted(by_uuid.get(facts.get("uuid"), []))),
                    )
                )
        return gpus

    def _hosts(self, now: int) -> list[Host]:
        return [
            Host(
                name=name,
                facts=node.header,
                now=node.tick_before(self._over_ns).get("host") or {},
                cpu_series=tuple(node.cpu_series),
                age_s=_age(node.tick, now),
                nvml_error=node.header.get("nvml_error"),
            )
            for name, node in sorted(self._nodes.items())
        ]

    def _rank(self, number: int, rank: RankFold, now: int) -> Rank:
        header = rank.header or rank.process_header
        host = str(header.get("host", ""))
        marker_ns = rank.beat.get("marker_ns")
        process = {}
        for node in self._nodes.values():
            for entry in node.processes.get("ranks") or ():
                if entry.get("rank") == number:
                    process = entry
        return Rank(
            rank=number,
            host=host,
            header=header,
            loaders=tuple(loader for _, loader in sorted(rank.loaders.items())),
            ddp=rank.facts.get("ddp", {}),
            optimizer=rank.facts.get("optimizer", {}),
            script=rank.facts.get("script", {}),
            memory=rank.memory,
            marker=rank.beat.get("marker"),
            marker_age_s=max(0, now - marker_ns) / 1e9 if marker_ns else None,
            ready=rank.beat.get("ready"),
            process=process,
            exit_code=rank.exit_code,
            exception=rank.exception,
            inspected=rank.inspected,
            over=rank.over,
        )


def _finding(finding: Mapping[str, Any]) -> tuple[str, str]:
    """What a finding is called, with its rank, and its severity."""
    rank = finding.get("rank")
    named = str(finding.get("kind")) + ("" if rank is None else f" of rank {rank}")
    return named, str(finding.get("severity"))


def _age(record: Mapping[str, Any], now: int) -> float:
    stamp = record.get("mono_ns")
    return max(0, now - stamp) / 1e9 if stamp else float("inf")
