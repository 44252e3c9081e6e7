"""The report of one session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchtop.export.source import Source
from torchtop.htmlreport.gather import gather
from torchtop.htmlreport.markup import Content, Markup, plain, table, tag
from torchtop.htmlreport.numbers import NA, duration, figure_of, gib, percent, with_unit
from torchtop.htmlreport.page import figure, page, tiles, verdict_card
from torchtop.session.load import Loaded
from torchtop.session.measures import used_gpus
from torchtop.session.records import PHASES, UNKNOWN
from torchtop.session.sides import facts
from torchtop.session.values import child, children, number

_MOST_RANKS = 64

Summary = Mapping[str, Any]


def session_report(loaded: Loaded) -> str:
    """A session as an HTML document."""
    from torchtop.htmlreport.session_plots import plots

    summary = loaded.summary
    name = plain(summary.get("name") or loaded.paths.id)
    drawn = plots(gather(Source(loaded)), summary)
    figures = [figure(plot.title, plot.drawn, plot.note) for plot in drawn]
    body: list[Content] = [*_head(loaded, name)]
    verdict = child(summary, "verdict")
    body.append(verdict_card(verdict or None))
    body += [verdict_card(finding, "Beside it: ") for finding in children(summary, "findings")]
    body.append(_tiles(summary))
    if figures:
        body += [tag("h2", "Over time"), tag("div", *figures, class_="plots")]
    body += [*_tables(loaded)]
    return page(f"{name} – torchtop", body)


def _head(loaded: Loaded, name: str) -> Iterator[Markup]:
    summary, told = loaded.summary, facts(loaded)
    yield tag("h1", name)
    status = "running" if loaded.running else str(summary.get("status") or "unknown")
    message = child(summary, "exit").get("message")
    ended = f"{status}: {message}" if message and not loaded.running else status
    ranks = told.get("ranks", "?")
    what = f"{told.get('workload', 'unknown workload')}, {ranks} rank{'s' * (ranks != '1')}"
    yield tag("p", plain(f"{what} on {told.get('device', '?')}", 300), class_="sub")
    when = f"{summary.get('started_at') or 'start unknown'}, ran {duration(summary.get('wall_s'))}"
    yield tag("p", plain(f"{when}, {ended}", 500), class_="sub")
    if loaded.running:
        yield tag("p", "The session is running: this is how it stands.", class_="sub")
    if summary.get("problem"):
        yield tag("p", plain(f"Incomplete: {summary['problem']}", 500), class_="sub")
    if summary.get("synthetic_data"):
        yield tag("p", "The data is synthetic: made up in the data set's format.", class_="sub")


def _tiles(summary: Summary) -> Markup:
    speed, step = child(summary, "throughput"), child(summary, "step_ms")
    values = [("samples a second", figure_of(speed.get("samples_per_s")))]
    if number(speed.get("tokens_per_s")) is not None:
        values.append(("tokens a second", figure_of(speed.get("tokens_per_s"))))
    values += [
        ("a step, mean", with_unit(step.get("mean"), "ms")),
        ("a step, 95th percentile", with_unit(step.get("p95"), "ms")),
        ("steps", figure_of(summary.get("steps"))),
        ("memory peak of a rank", _memory(summary)),
        ("SM active, mean", _mean_active(summary)),
        ("power, GPUs in use", _power(summary)),
    ]
    loss = number(child(summary, "loss").get("last"))
    if loss is not None:
        values.append(("loss, last", figure_of(loss)))
    return tiles((name, value) for name, value in values if value != NA)


def _memory(summary: Summary) -> str:
    peaks = [number(rank.get("memory_peak_bytes")) for rank in children(summary, "ranks")]
    known = [peak for peak in peaks if peak is not None]
    return f"{gib(max(known))} GiB" if known else NA


def _mean_active(summary: Summary) -> str:
    shares = [number(gpu.get("sm_active_mean")) for gpu in used_gpus(summary)]
    known = [share for share in shares if share is not None]
    return percent(sum(known) / len(known), 0) if known else NA


def _power(summary: Summary) -> str:
    watts = [number(gpu.get("power_mean_w")) for gpu in used_gpus(summary)]
    known = [value for value in watts if value is not None]
    return with_unit(sum(known), "W") if known else NA


def _tables(loaded: Loaded) -> Iterator[Markup]:
    summary = loaded.summary
    yield tag("h2", "Phases of a step")
    yield _phases(summary)
    if ranks := children(summary, "ranks"):
        yield tag("h2", "Ranks")
        yield _ranks(ranks)
    if gpus := children(summary, "gpus"):
        yield tag("h2", "GPUs")
        yield _gpus(gpus)
    if verdicts := children(summary, "verdicts"):
        yield tag("h2", "Verdicts, the longest first")
        yield _verdicts(verdicts)
    yield tag("h2", "What ran")
    rows = [(name, plain(value, 1000)) for name, value in facts(loaded).items()]
    yield table(("", ""), [("session", loaded.paths.id), *rows], text_columns=2)


def _phases(summary: Summary) -> Markup:
    rows = []
    phases = child(summary, "phases")
    for phase in (*PHASES, UNKNOWN) if UNKNOWN in phases else PHASES:
        told = child(phases, phase)
        rows.append((phase, figure_of(told.get("ms")), percent(told.get("share"))))
    return table(("phase", "ms a step", "share"), rows)


def _ranks(ranks: list[Mapping[str, Any]]) -> Markup:
    head = ("rank", "host", *(f"{phase}, ms" for phase in PHASES), "waits, ms", "lag, ms",
            "peak, GiB", "workers")  # fmt: skip
    rows = [
        (
            figure_of(rank.get("rank")),
            plain(rank.get("host") or NA, 60),
            *(figure_of(child(child(rank, "phases"), phase).get("ms"), 3) for phase in PHASES),
            figure_of(rank.get("wait_ms"), 3),
            figure_of(rank.get("lag_ms"), 3),
            gib(rank.get("memory_peak_bytes")),
            figure_of(child(rank, "loader").get("workers")),
        )
        for rank in ranks[:_MOST_RANKS]
    ]
    return table(head, rows, text_columns=2)


def _gpus(gpus: list[Mapping[str, Any]]) -> Markup:
    head = ("GPU", "name", "utilization, %", "SM active", "memory peak, GiB", "power, W",
            "energy, kJ")  # fmt: skip
    rows = []
    for gpu in gpus[:_MOST_RANKS]:
        energy = number(gpu.get("energy_j"))
        rows.append(
            (
                figure_of(gpu.get("index")),
                plain(gpu.get("name") or NA, 60),
                figure_of(gpu.get("util_mean")),
                percent(gpu.get("sm_active_mean"), 0),
                gib(gpu.get("memory_peak_bytes")),
                figure_of(gpu.get("power_mean_w")),
                figure_of(None if energy is None else energy / 1e3),
            )
        )
    return table(head, rows, text_columns=2)


def _verdicts(verdicts: list[Mapping[str, Any]]) -> Markup:
    rows = [
        (
            plain(verdict.get("kind") or NA, 40),
            plain(verdict.get("headline") or "", 300),
            percent(verdict.get("share"), 0),
            duration(verdict.get("seconds")),
        )
        for verdict in verdicts[:50]
    ]
    return table(("verdict", "", "share of a step", "stood for"), rows, text_columns=2)
