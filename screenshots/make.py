"""Draw the pictures of this folder from recorded sessions, as SVG and PNG.

    python screenshots/make.py                      all of tests/fixtures/sessions
    python screenshots/make.py slow-loader straggler
    python screenshots/make.py --made slow-loader   from sessions made up by tests/app

The SVG is Textual's own; the PNG is drawn from it with resvg and the DejaVu fonts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tui"), str(ROOT / "tests")]
# The pictures must not depend on who draws them.
os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
os.environ["TORCHTOP_HOME"] = os.devnull  # no baselines of whoever draws them
for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM", "TEXTUAL_FILTERS"):
    os.environ.pop(name, None)

from app.fake_controller import CATALOG, FakeController  # noqa: E402
from app.made_session import CASES, make, make_idle  # noqa: E402
from torchtop.app.charts.glyphs import UNICODE  # noqa: E402
from torchtop.app.logs import LogTail  # noqa: E402
from torchtop.app.main import TorchtopApp  # noqa: E402
from torchtop.session.paths import SessionPaths  # noqa: E402
from torchtop.session.replay import Replay  # noqa: E402
from torchtop.session.tail import Tail  # noqa: E402

FIXTURES = ROOT / "tests" / "fixtures" / "sessions"
SIZES = ((80, 24), (160, 48))
FONT_SANS, FONT_MONO = "DejaVu Sans", "DejaVu Sans Mono"


class Still(TorchtopApp):
    """The viewer, standing still."""

    def begin(self) -> None:
        """Follow nothing."""


def moment_ns(session: Path) -> int:
    """The last moment with a verdict: before the run was ended, where the panes are full."""
    records = Tail(SessionPaths(session).analysis).poll()
    told = [r["mono_ns"] for r in records if r.get("verdict")]
    return told[-1] if told else Replay(session).end_ns


def is_failed(session: Path) -> bool:
    """Whether the picture is of the failure and not of the run."""
    return Replay(session).at(2**62).status == "failed"


async def draw(session: Path, size: tuple[int, int], keys: Sequence[str] = ()) -> str:
    """One picture as SVG."""
    replay = Replay(session)
    snapshot = replay.at(replay.end_ns if is_failed(session) else moment_ns(session))
    app = Still(FakeController(session.parent), session)
    async with app.run_test(size=size) as pilot:
        app.update_view(
            snapshot=snapshot,
            logs=LogTail(SessionPaths(session).logs).poll(),
            catalog=CATALOG,
            glyphs=UNICODE,
        )
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
        await pilot.pause()
        title = f"torchtop: {snapshot.meta.get('name') or 'idle'}"
        return re.sub(r"[ \t]+$", "", app.export_screenshot(title=title), flags=re.MULTILINE)


def save(svg: str, path: Path) -> None:
    """Write a picture in both forms."""
    import resvg_py

    path.with_suffix(".svg").write_text(svg, encoding="utf-8")
    png = resvg_py.svg_to_bytes(
        svg_string=svg,
        sans_serif_family=FONT_SANS,
        monospace_family=FONT_MONO,
        font_family=FONT_SANS,
    )
    path.with_suffix(".png").write_bytes(bytes(png))
    print(path.with_suffix(".png"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="sessions (all when omitted)")
    parser.add_argument("--made", action="store_true", help="draw made-up sessions")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder")
    parser.add_argument("--size", action="append", help="such as 120x40; may be given again")
    parser.add_argument("--keys", default="", help="keys to press first, separated by spaces")
    options = parser.parse_args(arguments)
    sizes = [tuple(map(int, s.split("x"))) for s in options.size or ()] or list(SIZES)
    names = options.names or sorted(p.name for p in FIXTURES.glob("*") if p.is_dir())
    if not names:
        parser.error(f"there is no session in {FIXTURES}; --made draws made-up sessions by name")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            session = FIXTURES / name
            if options.made:
                session = Path(folder) / name
                if name == "idle":
                    make_idle(session, CASES["healthy"])
                else:
                    make(session, CASES[name])
            elif not session.is_dir():
                parser.error(f"{session} is not there; --made draws made-up sessions")
            for width, height in sizes:
                svg = asyncio.run(draw(session, (width, height), options.keys.split()))
                save(svg, options.out / f"{name}-{width}x{height}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
