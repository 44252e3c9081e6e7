"""Driving the app in tests: wait for a condition instead of for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.events import Key
from textual.keys import _character_to_key
from textual.pilot import Pilot

from app.fake_controller import FakeController
from app.made_session import CASES, make
from torchtop.app.main import TorchtopApp

LIMIT_S = 10.0
SMALL, MEDIUM, LARGE = (80, 24), (120, 40), (200, 50)


class Driven:
    """A running app with its pilot and its controller."""

    def __init__(self, app: TorchtopApp, pilot: Pilot[int], controller: FakeController) -> None:
        self.app, self.pilot, self.controller = app, pilot, controller
        self.told: list[str] = []
        """What has been told in passing, for the story of a failure."""
        tell = app.tell

        def noted(text: str, error: bool = False) -> None:
            self.told.append(text)
            tell(text, error)

        app.tell = noted  # type: ignore[method-assign]

    @property
    def lines(self) -> list[str]:
        """The screen's lines as they are drawn."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    @property
    def text(self) -> str:
        """The whole screen."""
        return "\n".join(self.lines)

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Let the app work until a condition holds."""
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, f"never: {what or condition}\n{self.text}\n{self.told}"
            await asyncio.sleep(0.01)

    async def shows(self, *texts: str) -> None:
        """Wait until all texts are on the screen."""
        await self.until(lambda: all(text in self.text for text in texts), f"{texts}")

    async def press(self, *keys: str) -> None:
        """Press keys, and let them be handled."""
        await self.pilot.press(*keys)

    def burst(self, *keys: str) -> None:
        """Keys that arrive in one read of the terminal: none is handled before the last is in."""
        for key in keys:
            single = len(key) == 1
            name = _character_to_key(key) if single else key
            self.app.post_message(Key(name, key if single else None))

    def asked(self, what: str) -> list[tuple[object, ...]]:
        """The calls of one kind that the controller has had."""
        return [call for call in self.controller.calls if call[0] == what]


@asynccontextmanager
async def driven(
    tmp_path: Path,
    case: str | None = "slow-loader",
    size: tuple[int, int] = SMALL,
    replay: bool = False,
    seconds: int = 75,
) -> AsyncIterator[Driven]:
    """The app on a made session, once it shows it; on the idle view where `case` is None."""
    root = tmp_path / "sessions"
    root.mkdir(exist_ok=True)
    controller = FakeController(root)
    session = make(root / f"20261129-{case}", CASES[case], seconds) if case else None
    app = TorchtopApp(controller, session, replay, interval_s=1.0)
    async with app.run_test(size=size, notifications=True) as pilot:
        driving = Driven(app, pilot, controller)
        ready = lambda: app.view.snapshot is not None and app.view.catalog  # noqa: E731
        await driving.until(ready, "the first snapshot")
        yield driving
