"""``make score``: run faults with a known answer, and score what torchtop tells about them.

    make score ARGS="--device cpu --faults F1,F6b"     run some, and report
    make score ARGS="--device cuda --profile --counterfactual --out shard1"
    make score ARGS="--report shard1 shard2"           one table of several runs
    make score ARGS="--offline shard1 shard2"          verdicts made again from the recordings

Each fault leaves its recording in a folder of ``--out``, and the score beside them in
``score.json``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The folder of this file has a name that the standard library has, too.
sys.path[0:1] = [str(ROOT / part) for part in ("tui", "workloads", "tests")]

from score import judge, recording, report  # noqa: E402
from score.launch import Plan, Series  # noqa: E402
from torchtop.launch.analyst import analyse_again  # noqa: E402
from torchtop.session.paths import SessionError, SessionPaths  # noqa: E402
from torchtop_workloads import faults  # noqa: E402

_SECONDS = {"cuda": 10.0, "cpu": 14.0}
_FIXED_SECONDS = {"cuda": 2.5, "cpu": 5.0}
"""A window of verdicts is ten seconds long, and the first is due after five."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run, report, or both; status 0 where all faults are told as they should be."""
    options = _parser().parse_args(argv)
    folders = [Path(folder) for folder in options.report or options.offline or [options.out]]
    if not options.report and not options.offline:
        failed = _run(options)
        if failed:
            print(f"score: not well ended: {' '.join(failed)}", file=sys.stderr)
    if options.offline:
        _analyse_again(folders)
    rows, facts = score(folders)
    if not rows:
        print(f"score: no recordings in {' '.join(map(str, folders))}", file=sys.stderr)
        return 2
    target = folders[-1] / "score.json"
    target.write_text(json.dumps(report.as_json(rows, **facts), indent=1) + "\n")
    print(report.as_text(rows))
    print(f"as JSON: {target}", file=sys.stderr)
    return 0 if all(row.passed for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make score",
        description=(__doc__ or "").replace("%", "%%"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--report", nargs="+", metavar="DIR", help="only report on recordings")
    what.add_argument("--offline", nargs="+", metavar="DIR", help="judge recordings anew")
    parser.add_argument("--faults", metavar="F0,F1", help="codes or names (all of the device)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cpu")
    parser.add_argument("--seconds", type=float, help="with the fault (10 on cuda, 14 on cpu)")
    parser.add_argument(
        "--counterfactual", action="store_true", help="also without the fault's cause"
    )
    parser.add_argument("--fixed-seconds", type=float, help="for that (2.5 on cuda, 5 on cpu)")
    parser.add_argument("--profile", action="store_true", help="also under torch.profiler")
    parser.add_argument("--profile-steps", type=int, default=24, help="for that (24)")
    parser.add_argument(
        "--share-gpu",
        action="store_true",
        help="two ranks on one GPU, which talk through the loopback network (on cuda): for the "
        "faults of ranks; with a small network (-o width=1024 -o depth=6), or COMM is all",
    )
    parser.add_argument("--out", default="build/score", metavar="DIR", help="(build/score)")
    parser.add_argument("--budget", type=float, default=3600.0, metavar="S", help="stop in time")
    parser.add_argument("-o", "--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--ahead",
        action=argparse.BooleanOptionalAction,
        help="start the next run while one is under way (on cuda)",
    )
    return parser


def _run(options: argparse.Namespace) -> list[str]:
    device: str = options.device
    plan = Plan(
        device,
        options.seconds or _SECONDS[device],
        (options.fixed_seconds or _FIXED_SECONDS[device]) if options.counterfactual else 0.0,
        options.profile_steps if options.profile else 0,
        tuple(options.option),
        share_gpu=options.share_gpu,
    )
    # On a CPU the start of a run would be another fault of the one before.
    ahead = device == "cuda" if options.ahead is None else options.ahead
    out = Path(options.out).absolute()
    series = Series(plan, out, ahead=ahead, budget_s=options.budget)
    series.run(_chosen(options.faults, device))
    return series.failed


def _chosen(names: str | None, device: str) -> list[faults.Fault]:
    if names is None:
        return [fault for fault in faults.FAULTS if device in fault.devices]
    try:
        chosen = [faults.find(name.strip()) for name in names.split(",")]
    except KeyError as error:
        raise SystemExit(f"score: there is no fault {error.args[0]}") from None
    for fault in chosen:
        if device not in fault.devices:
            raise SystemExit(f"score: {fault.code} cannot happen on {device}")
    return chosen


def _analyse_again(folders: Sequence[Path]) -> None:
    for folder in folders:
        for session in sorted(folder.glob("*/session")):
            try:
                analyse_again(SessionPaths(session.absolute()))
            except SessionError as error:
                print(f"score: {session}: {error}", file=sys.stderr)


def score(folders: Sequence[Path]) -> tuple[list[judge.Row], dict[str, object]]:
    """The rows of all recordings in folders, in the matrix's order, and what they were made on.

    Of a fault that was recorded more than once the last counts.
    """
    rows: dict[str, judge.Row] = {}
    facts: dict[str, object] = {}
    for folder in folders:
        for fault in faults.FAULTS:
            session = folder / fault.code / "session"
            if (folder / fault.code / "run.json").is_file():
                found = recording.read(session)
                traces = recording.traced(folder / fault.code / "trace.json")
                rows[fault.code] = judge.judge(fault, found, traces)
                facts = {"device": found.device, "versions": recording.versions(session)}
    return [rows[fault.code] for fault in faults.FAULTS if fault.code in rows], facts


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what runs is ended
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
