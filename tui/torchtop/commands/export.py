"""``export``: a session in the formats of other programs."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from torchtop.commands.errors import UsageError
from torchtop.commands.text import safe
from torchtop.export.source import Source
from torchtop.session.load import load
from torchtop.session.paths import SessionError, safe_name
from torchtop.session.there import is_dir

FORMATS = ("csv", "perfetto", "tensorboard")


def run(args: argparse.Namespace) -> int:
    """Write a session in another format, and say where."""
    if args.format == "tensorboard":
        from torchtop.export.tensorboard import need_tensorboard

        need_tensorboard()
    loaded = load(args.session)
    source = Source(loaded, args.last)
    if not source.ranks():
        raise SessionError(f"{loaded.paths.id} has nothing to export: no rank has trained")
    if loaded.running:
        print(f"{safe(loaded.paths.id)} is running: this is what there is so far", file=sys.stderr)
    made = _write(source, args.format, args.output)
    print(safe(made))
    return 0


def _write(source: Source, format_: str, output: str | None) -> Path:
    name = safe_name(source.paths.id, 100)
    if format_ == "perfetto":
        from torchtop.export.perfetto import write_trace

        path = Path(output or f"{name}.trace.json")
        with new_file(path) as partial:
            write_trace(source, partial)
        return path
    if format_ == "csv":
        from torchtop.export.tables import write_tables as write
    else:
        from torchtop.export.tensorboard import write_events as write
    path = Path(output or f"{name}-{format_}")
    _new_directory(path, lambda: write(source, path))
    return path


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file to write, which becomes `path` at the end of the block; an old one stays till then.

    Raises:
        UsageError: it cannot be written.
    """
    if is_dir(path):
        raise UsageError(f"{safe(path)} is a directory; name a file: -o FILE")
    # The name's end stays: it may say that the content is to be compressed.
    partial = path.with_name(f".partial-{path.name}")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {safe(path)}: {error.strerror}; name another: -o") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _new_directory(path: Path, write: Callable[[], object]) -> None:
    """Make a directory and have it filled; what could not be finished is taken away again.

    Raises:
        UsageError: there is something of that name, or it cannot be written.
    """
    made = False
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{safe(path)} is there already; name another directory: -o DIR")
        path.mkdir(parents=True, exist_ok=True)
        made = True
        write()
    except OSError as error:
        if made:
            shutil.rmtree(path, ignore_errors=True)
        raise UsageError(f"cannot write {safe(path)}: {error.strerror}; name another: -o") from None


def add_arguments(parser: argparse.ArgumentParser, seconds: Callable[[str], float]) -> None:
    """The arguments of ``export``, beside the session."""
    parser.add_argument("--format", choices=FORMATS, required=True, help="what to write")
    parser.add_argument("-o", "--output", metavar="PATH", help="the file (perfetto) or directory")
    parser.add_argument(
        "--last", type=seconds, metavar="T", help="only the last so long, such as 90s or 10m"
    )
