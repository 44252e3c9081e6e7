"""The command line: what can be typed, and the one place where errors become a line."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from torchtop import __version__

_USAGE = 2
_STOPPED = 130

_EPILOG = """\
examples:
  torchtop                                     watch the GPUs, start a workload with a key
  torchtop run resnet50-cifar10 -o batch=256   train on all GPUs and watch
  torchtop run --no-tui --steps 200 train.py --lr 0.1
  torchtop run -- torchrun --nproc-per-node 2 train.py
  torchtop attach                              back to the latest session
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line, and that guesses no abbreviations."""

    fill: Callable[[_Parser], None] | None = None
    """Adds the arguments, once this is the command that was typed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, with the arguments that nobody needs before."""
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does; what is no command is told with what may have been meant."""
        commands = list(action.choices or ())
        if action.dest == "verb" and value not in commands:
            from difflib import get_close_matches

            close = get_close_matches(value[:40], commands, n=1)
            meant = f"torchtop {close[0]}" if close else f"torchtop run {value}"
            self.error(f"there is no command {value}; did you mean: {meant}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        from torchtop.commands.text import one_line

        message = message.removesuffix(", ...")  # a script's own arguments are never required
        # Most of argparse's complaints quote what was typed as it was typed.
        self.exit(_USAGE, f"torchtop: {one_line(message)} (see: {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process when omitted.

    Returns:
        The exit status: 0 done, 1 the training failed, 2 bad usage, 130 stopped by the user.
    """
    if not sys.platform.startswith("linux"):
        return _fail("torchtop runs on Linux only", _USAGE)
    words = list(sys.argv[1:] if argv is None else argv)
    args = parse(words)
    args.words = words
    command: Callable[[argparse.Namespace], int] = args.command
    from torchtop.commands.errors import UsageError
    from torchtop.launch.spec import LaunchError
    from torchtop.session.paths import SessionError

    try:
        return command(args)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe (head, say) has seen enough
        return 0
    except UsageError as error:
        return _fail(str(error), error.status, error.whole)
    except LaunchError as error:
        return _fail(str(error), error.exit_status)
    except SessionError as error:
        return _fail(_no_home(args) or f"{error}{_runs_on(args)}", _USAGE)
    except KeyboardInterrupt:
        return _STOPPED
    except Exception as error:
        from torchtop.app.crash import report

        return _fail(report(error, "torchtop"), 1)


def _no_home(args: argparse.Namespace) -> str | None:
    """Where a session cannot be found because the state directory is none."""
    from torchtop.commands.errors import unusable_home
    from torchtop.session.paths import SessionError

    try:
        return None if any("/" in (name or "") for name in _asked(args)) else unusable_home()
    except SessionError:
        return None  # there is no home directory: that is the error being told


def _asked(args: argparse.Namespace) -> list[str | None]:
    """The sessions that a command names."""
    asked = getattr(args, "session", None)
    return asked if isinstance(asked, list) else [asked]


def _runs_on(args: argparse.Namespace) -> str:
    """Where a session cannot be found because its directory was deleted over a living run."""
    from torchtop.launch.sweep import unseen
    from torchtop.session.paths import SessionError, sessions_root

    try:
        runs = [run.session for run in unseen(sessions_root()) if run.session in _asked(args)]
    except SessionError:
        return ""  # there is no state directory to look in: that is the error being told
    return "".join(
        f"; {run} runs on, but its directory was deleted: torchtop stop {run}" for run in runs
    )


def _fail(message: str, status: int, whole: bool = False) -> int:
    from torchtop.commands.text import one_line

    with contextlib.suppress(OSError):  # nobody may be there to read it
        print(f"torchtop: {one_line(message, whole)}", file=sys.stderr)
    return status


def parse(words: list[str]) -> argparse.Namespace:
    """Parse a command line; ends the process with one line where it makes no sense."""
    parser = _parser()
    if words[:1] != ["run"]:
        return _parsed(parser, words)
    # A script's own arguments are none of argparse's business: it would take `--gpu 0` of theirs
    # for an abbreviation, and `--` for its own.
    options, rest = _split_run(words[1:])
    is_command = rest[:1] == ["--"]
    if is_command:
        rest = rest[1:]
        if not rest:
            parser.error("after -- give a command, such as: run -- bash train.sh")
    args = _parsed(parser, ["run", *options, *(["--", rest[0]] if rest else [])])
    args.arguments, args.is_command = rest[1:], is_command
    if not is_command:
        _take_late_options(args)
    return args


def _parsed(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """As ``parse_args``; what a command does not know is told with its own help."""
    args, unknown = parser.parse_known_args(words)
    if unknown:
        parser.prog = " ".join(filter(None, [parser.prog, args.verb]))
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def _split_run(words: list[str]) -> tuple[list[str], list[str]]:
    """The options of a ``run``, and what follows them: the target and its own arguments."""
    takes_value = {
        name
        for action in _run_options(_Parser(add_help=False))._actions
        for name in action.option_strings
        if action.nargs is None
    }
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] not in ("-", "--"):
        place += 2 if words[place] in takes_value else 1
    return words[:place], words[place:]


def _take_late_options(args: argparse.Namespace) -> None:
    """After a workload's name the options of run may still follow; after a script they are its."""
    target: str = args.target
    if args.module or "/" in target or target.endswith(".py") or not args.arguments:
        return
    late = _run_options(_Parser(prog="torchtop run", add_help=False))
    late.set_defaults(**{k: v for k, v in vars(args).items() if k not in ("arguments", "option")})
    parsed, rest = late.parse_known_args(args.arguments)
    parsed.option = [*(args.option or []), *(parsed.option or [])]
    vars(args).update(vars(parsed), arguments=rest)


def _of(module: str, name: str) -> Callable[..., Any]:
    """A function of a command's module, which is loaded when it is called: a command needs one."""

    def call(*given: Any, **named: Any) -> Any:
        return getattr(import_module(f"torchtop.commands.{module}"), name)(*given, **named)

    return call


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="torchtop",
        description="htop for PyTorch training: start DDP jobs, see where each step goes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"torchtop {__version__}")
    parser.set_defaults(command=_of("run", "view"))
    _run_defaults(parser)
    verbs = parser.add_subparsers(
        title="commands", dest="verb", metavar="COMMAND", parser_class=_Parser
    )

    def verb(name: str, text: str, module: str = "", function: str = "run") -> _Parser:
        added: _Parser = verbs.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + "."
        )
        added.set_defaults(command=_of(module or name, function))
        return added

    _watching(verb)
    _json(_session(verb("show", "print a session's summary", "sessions", "show")))
    ending = _session(
        verb("stop", "stop a session, or what a lost one has left", "stopping", "stop"),
        "the only one that runs",
    )
    how = ending.add_mutually_exclusive_group()
    how.add_argument("--soft", action="store_true", help="let the script save a checkpoint first")
    how.add_argument("--kill", action="store_true", help="at once")
    how.add_argument("--leftovers", action="store_true", help="end what all lost sessions left")
    ending.add_argument("--no-wait", action="store_true", help="ask, and return")
    _json(
        _session(verb("stacks", "print where each rank's Python code stands", "stacks", "stacks"))
    )
    _json(_session(verb("inspect", "name the lines that wait for the GPU", "inspect", "inspect")))
    _json(verb("ls", "list the sessions", "listing", "ls"))
    _before_a_run(verb)
    _files(verb)
    verb("sweep", "measure scaling, options, interpreters").fill = _of("sweep", "add_arguments")
    again = verb("analyse", "make an ended session's verdicts again", "sessions", "analyse")
    _session(again, _ENDED)
    removing = verb("rm", "delete sessions, and sweeps with the sessions they made", "removing")
    removing.fill = _of("removing", "add_arguments")
    return parser


def _before_a_run(verb: Callable[..., _Parser]) -> None:
    """The commands that say what can be run here."""
    choosing = _json(verb("workloads", "list the catalog", "info", "workloads"))
    choosing.add_argument("workload", nargs="?", metavar="NAME", help="show this one's options")
    verb("init", "write a torchtop.toml by looking at this directory", "init", "init")
    looking = _json(verb("doctor", "say what is there and what is missing", "info", "doctor"))
    looking.add_argument("--python", metavar="PATH", help="the interpreter that will train")


def _files(verb: Callable[..., _Parser]) -> None:
    """The commands that make something else of what sessions have written."""
    comparing = verb("compare", "compare sessions, and tell the noise")
    comparing.fill = _of("compare", "add_arguments")
    reporting = verb("report", "write a session or a sweep as one HTML file")
    reporting.fill = _of("report", "add_arguments")
    exporting = _session(verb("export", "write a session in another format"))
    exporting.fill = partial(_of("export", "add_arguments"), seconds=_seconds)


def _watching(verb: Callable[..., _Parser]) -> None:
    """The commands that end in a screen, or in a line a second."""
    starting = _run_options(verb("run", "start a workload or script and watch it"))
    starting.add_argument(
        "target", metavar="WORKLOAD|SCRIPT", help="a catalog name, a path, or -- and a command"
    )
    starting.add_argument("arguments", nargs="*", metavar="...", help="the script's own arguments")
    for name, text in (
        ("attach", "watch a running session, or look at one that has ended"),
        ("replay", "play a recorded session back"),
    ):
        watching = _session(verb(name, text, "run", name), _ENDED if name == "replay" else _RUNNING)
        _run_defaults(watching)
        _interval(watching)
        watching.set_defaults(no_tui=False)
        if name == "attach":
            watching.add_argument("--no-tui", action="store_true", help="a line a second")


_RUNNING, _ENDED = "the latest that runs, else the latest", "the latest that has ended"
"""Which session is meant where none is named, as `torchtop.session.find` has it."""


def _session(parser: _Parser, otherwise: str = _RUNNING) -> _Parser:
    told = f"id, start of one, or path (default: {otherwise})"
    parser.add_argument("session", nargs="?", metavar="SESSION", help=told)
    return parser


def _json(parser: _Parser) -> _Parser:
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


def _interval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="refresh, in seconds (1)"
    )


def _run_options(parser: _Parser) -> _Parser:
    """The options of ``run``."""
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("--gpus", metavar="N|all", help="how many GPUs (all)")
    parser.add_argument("--gpu-ids", metavar="0,1", help="which GPUs, by NVML index")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--nproc", type=_integer, metavar="N", help="ranks (one a GPU; 2 on a CPU)")
    parser.add_argument(
        "--steps",
        type=_positive,
        metavar="N",
        help="stop after so many steps (a script of your own: up to about a second later)",
    )
    parser.add_argument("--duration", type=_seconds, metavar="S", help="stop after so many seconds")
    parser.add_argument(
        "-o", "--option", action="append", metavar="KEY=VALUE", help="an option of a workload"
    )
    parser.add_argument("--python", metavar="PATH", help="another interpreter runs the training")
    parser.add_argument("--name", metavar="NAME", help="what to call the session")
    parser.add_argument("--no-tui", action="store_true", help="a line a second, fit for a log")
    parser.add_argument("--detach", action="store_true", help="start it and return")
    parser.add_argument(
        "--ephemeral", action="store_true", help="keep nothing: remove the session once shown"
    )
    parser.add_argument("--yes", action="store_true", help="trust this torchtop.toml's workload")
    _interval(parser)
    return parser


def _run_defaults(parser: argparse.ArgumentParser) -> None:
    """What the viewer starts workloads with, where it was not started by ``run``."""
    plain = {"gpus": None, "gpu_ids": None, "device": "auto", "nproc": None, "steps": None}
    more = {
        "duration": None,
        "python": None,
        "name": None,
        "yes": False,
        "ephemeral": False,
        "interval": 1.0,
    }
    parser.set_defaults(**plain, **more)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"give a whole number, not {text!r}") from None


def _positive(text: str) -> int:
    if (value := _integer(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def _seconds(text: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    try:
        scale = units.get(text[-1:])
        value = float(text[:-1]) * scale if scale else float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"give a time such as 30, 90s, 10m or 2h, not {text!r}")
    return value
