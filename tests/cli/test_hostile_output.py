"""A script that writes what terminals obey, with such names too: it is text everywhere."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from app.pty_child import Child
from cli.command import environment, torchtop

LIMIT_S = 60.0
VIEWER = "import sys; from torchtop.cli import main; raise SystemExit(main(sys.argv[1:]))"
FOLDER, SCRIPT = "[bold]d\x1b]0;pwned\x07", "[red]we\x1b[2Jird[b] {}.py"
OBEYED = (
    r"\x1b]0;pwned\x07", r"\x1b]52;c;cHduZWQ=\x07", r"\x1b[?1049h\x1b[2J\x1b[H", r"\x1b[?1003h",
    r"\x1bP+q544e\x1b\\", r"\x1b[5n\x1b[c", r"\x1b]8;;http://x\x07link\x1b]8;;\x07", r"\x9b2J",
)  # fmt: skip
POINTER = b"\x1b]22;default\x07"
"""Textual's own: the shape of the mouse pointer."""

TEXT = f"""
import os, sys, time, torch
out = sys.stdout.buffer
for text in {OBEYED!r}:
    out.write(text.encode().decode("unicode_escape").encode("utf-8", "replace") + b" after\\n")
out.write(b"[link=http://x]y[/link] [bold red]markup[/] [/]\\n")
out.write(bytes(range(256)) * 40 + b"\\n")
out.write(b"A" * 5_000_000 + b"\\n")
out.flush()
for percent in range(0, 101, 5):
    sys.stderr.write(f"\\r{{percent:3d}}%|{{'#' * (percent // 5):20}}| {{percent}}/100")
    sys.stderr.flush()
net = torch.nn.Linear(4, 4)
for step in range(20):
    net(torch.ones(2, 4)).sum().backward()
raise ValueError("\\x1b]0;pwned\\x07 [bold]no[/]")
"""


def harmless(text: str) -> bool:
    return all(char.isprintable() or char in "\n" for char in text)


@pytest.mark.fault(24, "tqdm, 5 MB, binary, OSC, markup", "one line, truncated, neutralised")
def test_nothing_that_a_script_writes_is_obeyed(tmp_path: Path) -> None:
    # given a script in a folder, with a name, an output and an exception that steer terminals
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / SCRIPT).write_text(TEXT)
    words = ["run", "--no-tui", "--device", "cpu", "--nproc", "1", "--name", "n\x1b[2J[bold]"]
    # when it is run in plain lines
    done = torchtop(*words, str(folder / SCRIPT), home=tmp_path, cwd=tmp_path)
    # then it is told to have failed, in text alone
    assert done.returncode == 1
    assert "ValueError" in done.stdout and harmless(done.stdout) and harmless(done.stderr)
    # and so do all the others
    for command in (["ls"], ["show"], ["show", "--json"]):
        told = torchtop(*command, home=tmp_path, cwd=tmp_path)
        assert told.returncode == 0 and harmless(told.stdout), told.stdout
    # when it is looked at on the screen, its logs alone and then its failure
    child = Child(VIEWER, "attach", size=(120, 40), **environment(tmp_path))
    try:
        assert child.read(LIMIT_S, until=b"FAILED"), child.seen[-2000:]
        os.write(child.fd, b"ll")
        assert child.read(LIMIT_S, until=b"100%|####"), child.seen[-2000:]
        os.write(child.fd, b"f")
        assert child.read(LIMIT_S, until=b"traceback"), child.seen[-2000:]
        # a key right behind the one that closes a sheet is not taken: until it is, again
        os.write(child.fd, b"f")
        end = time.monotonic() + LIMIT_S
        while child.wait(0.5) is None and time.monotonic() < end:
            os.write(child.fd, b"q")
        assert child.status == 0
    finally:
        child.close()
    # then the terminal was told nothing but what the viewer itself wants of it
    screen = child.seen[: child.seen.rindex(b"\x1b[?1049l")].replace(POINTER, b"")
    assert screen.count(b"\x1b[?1049h") == 1
    assert re.findall(rb"\x1b\]|\x1bP|\x1b\[2J|\x1b\[\?1003h|\x1b\[5n|\x07|\x9b", screen) == []
    # and the progress bar was one line, the last one
    assert b" 95%|" not in screen
