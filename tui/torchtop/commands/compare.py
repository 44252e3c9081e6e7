"""``compare``: sessions side by side, and whether their differences exceed the noise."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter

from torchtop.commands.text import number, safe, table
from torchtop.session import noise
from torchtop.session.compare import Comparison, Finding, Row, as_json, compare
from torchtop.session.limits import Breach, breaches_json, judge, parse_limit
from torchtop.session.records import finite
from torchtop.session.sides import Side, choose, facts
from torchtop.session.values import child

_WORDS = {
    "better": "better",
    "worse": "worse",
    "changed": "changed",
    "same": "within the noise",
    "unclear": "cannot tell",
    "unknown": "noise not known",
    "missing": "–",
}

_SPEED_WORDS = {**_WORDS, "better": "faster", "worse": "slower"}


def run(args: argparse.Namespace) -> int:
    """Compare sides with the first one; status 1 where a limit is broken."""
    limits = [parse_limit(text) for text in args.fail_if or ()]
    sides, notes = choose(args.side, args.each)
    comparison = compare(sides, notes)
    breaches = [breach for limit in limits for breach in judge(comparison, limit)]
    if args.json:
        print(json.dumps(finite({**as_json(comparison), **breaches_json(breaches)}), indent=1))
    else:
        print("\n".join(lines(comparison)))
        sys.stdout.flush()
    for breach in breaches:
        print(safe(_breach_line(comparison, breach)), file=sys.stderr)
    return 1 if any(breach.failed for breach in breaches) else 0


def _breach_line(comparison: Comparison, breach: Breach) -> str:
    told = f"{breach.limit.text}: {breach.why} ({breach.side.letter} against A)"
    return f"{'FAILED' if breach.failed else 'passed'} {told}"


def lines(comparison: Comparison) -> list[str]:
    """A comparison as plain lines."""
    told = [_side_line(side) for side in comparison.sides]
    told += ["", *_figures(comparison), "", *_noise_lines(comparison)]
    if comparison.differing:
        head = ("DIFFERS", *(side.letter for side in comparison.sides))
        rows = [
            (name, *("–" if value is None else safe(value, 60) for value in each))
            for name, each in comparison.differing.items()
        ]
        told += ["", table(head, rows)]
    else:
        told += ["", "no recorded option, version or device differs"]
    told += ["", *(_verdict_line(side) for side in comparison.sides)]
    return told


def _side_line(side: Side) -> str:
    told = facts(side.runs[0])
    what = f"{safe(side.name, 40)}: {safe(told.get('workload', 'unknown workload'), 40)}"
    ranks = told.get("ranks", "?")
    where = f"{ranks} rank{'' if ranks == '1' else 's'} on {safe(told.get('device', '?'), 60)}"
    if len(side.runs) == 1:
        return f"{side.letter}  {what}, {where}, {safe(side.runs[0].paths.id)}"
    ids = [run.paths.id for run in side.runs]
    return f"{side.letter}  {what}, {where}, {len(ids)} runs: {safe(', '.join(ids), 200)}"


def _figures(comparison: Comparison) -> list[str]:
    """The table of all figures that at least one side has."""
    sides = comparison.sides
    head = ["FIGURE", *(side.letter for side in sides)]
    for side in sides[1:]:
        head += [f"{side.letter} AGAINST A", f"{100 * (1 - noise.SIGNIFICANCE):.0f} % INTERVAL", ""]
    rows = []
    for place, row in enumerate(comparison.rows):
        if _is_shown(row):
            cells = [row.measure.title, *(number(value, 4) for value in row.values)]
            for finding in row.findings:
                cells += _difference(finding, _SPEED_WORDS if place == 0 else _WORDS)
            rows.append(cells)
    return table(head, rows).splitlines()


def _is_shown(row: Row) -> bool:
    """Whether a figure was measured at all, and is more than next to nothing."""
    return any(value is not None and value >= 0.005 for value in row.values)


def _difference(finding: Finding, words: dict[str, str]) -> list[str]:
    difference = finding.difference
    if difference is None:
        return ["–", "–", words[finding.call]]
    between = "–"
    if difference.low is not None and difference.high is not None:
        between = f"{_percent(difference.low)} to {_percent(difference.high)}"
    return [f"{_percent(difference.relative)} %", between, words[finding.call]]


def _percent(share: float) -> str:
    """A change in per cent, without the sign: small ones to a hundredth."""
    value = share * 100
    if abs(value) >= 1000:
        return f"{value:+.0f}" if abs(value) < 1e6 else ("+" if value > 0 else "-") + ">1e6"
    return f"{value:+.1f}" if abs(value) >= 1 else f"{value:+.2f}"


def _noise_lines(comparison: Comparison) -> list[str]:
    told = []
    if comparison.floor:
        floor = comparison.floor
        told.append(
            f"noise: a single run strays by {floor.noise.share:.1%} in "
            f"{comparison.rows[0].measure.title} (from {floor.source})"
        )
    return told + [f"note: {safe(note)}" for note in comparison.notes]


def _verdict_line(side: Side) -> str:
    """How the runs of a side were judged, the most frequent first."""
    kinds = Counter(_verdict(run.summary) for run in side.runs)
    if len(side.runs) == 1:
        headline = child(side.runs[0].summary, "verdict").get("headline")
        told = f": {safe(headline, 120)}" if headline else ""
        return f"verdict {side.letter}  {safe(next(iter(kinds)))}{told}"
    told = ", ".join(f"{kind} in {count}" for kind, count in kinds.most_common())
    return f"verdict {side.letter}  {safe(told)} of {len(side.runs)} runs"


def _verdict(summary: object) -> str:
    return str(child(summary, "verdict").get("kind") or "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``compare``."""
    parser.add_argument(
        "side", nargs="+", metavar="SIDE", help="a session, SESSION,SESSION,... or a --name"
    )
    parser.add_argument(
        "--fail-if",
        action="append",
        metavar="LIMIT",
        help='exit with 1 when it holds and is no noise, as in "throughput<-5%%"; repeatable',
    )
    parser.add_argument("--each", action="store_true", help="every session is a side of its own")
    parser.add_argument("--json", action="store_true", help="for programs")
