"""What faulthandler writes, and what is told of it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from session.made import held_lock, session, write
from torchtop.session.paths import SessionError, SessionPaths
from torchtop.session.records import encode
from torchtop.session.stacks import Frame, RankStack, _stack, parse, take, tell

DUMP = """\
Thread 0x00007f3106efe6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/state/sessions/x/stage/_torchtop/probe/writer.py", line 150 in _run
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007f31076ff6c0 [loader] (most recent call first):
  File "/usr/lib/python3.11/queue.py", line 12 in get
  File "/home/ana/train/feed.py", line 7 in fill

Current thread 0x00007f31d9c6cb80 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/autograd/graph.py", line 1072 in _engine
  File "/state/sessions/x/stage/_torchtop/probe/hooks.py", line 89 in backward
  File "/env/lib/python3.11/site-packages/torch/_tensor.py", line 623 in backward
  File "/home/ana/train/train.py", line 19 in step
  File "/home/ana/shared/loop.py", line ??? in main
  File "/state/sessions/x/stage/_torchtop/probe/entry.py", line 38 in run
  File "/state/sessions/x/stage/rank.py", line 16 in <module>

Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3", at _Py_DumpStack+0x48 [0x5577]
"""


def told(text: str) -> list[str]:
    return [f"{line.kind}: {line.text}" for line in tell([stack_of(text)], {3: "was\x1b[2J here"})]


def stack_of(text: str) -> RankStack:
    return _stack(3, text, "/home/ana/train")


def test_the_users_lines_come_first_and_torchtops_own_not_at_all() -> None:
    assert told(DUMP) == [
        "rank: rank 3: was\x1b[2J here",
        "note: your own calls, the innermost first",
        "own: train.py:19 in step",
        "own: /home/ana/shared/loop.py:??? in main",
        "note: within the first of these, in libraries, innermost call first",
        "library: torch/autograd/graph.py:1072 in _engine",
        "library: torch/_tensor.py:623 in backward",
        "note: another thread",
        "own: feed.py:7 in fill",
    ]


@pytest.mark.parametrize(
    ("own", "where"),
    [
        (0, "in libraries alone, innermost call first"),
        (1, "within this call, in libraries, innermost call first"),
        (2, "within the first of these, in libraries, innermost call first"),
    ],
)
def test_it_says_where_the_calls_of_libraries_lie(own: int, where: str) -> None:
    calls = [Frame("torch/a.py:1", "wait", False)]
    calls += [Frame(f"train.py:{line}", "step", True) for line in range(own)]
    notes = [line.text for line in tell([RankStack(0, tuple(calls))]) if line.kind == "note"]
    assert notes[-1] == where
    assert ("your own calls, the innermost first" in notes) == (own > 1)


def test_the_main_thread_is_told_whichever_thread_took_the_signal() -> None:
    swapped = DUMP.replace("Current thread 0x", "Thread 0x").replace(
        "Thread 0x00007f31076ff6c0", "Current thread 0x00007f31076ff6c0"
    )
    assert told(swapped) == told(DUMP)


@pytest.mark.parametrize("text", ["", "nonsense\n\0\n", '  File "x", line 3 in f\n'])
def test_a_rank_that_has_written_nothing_is_told_as_such(text: str) -> None:
    assert stack_of(text).problem is not None
    assert told(text)[1].startswith("note: it does not answer")


def test_a_torn_dump_is_told_as_far_as_it_goes() -> None:
    for end in range(len(DUMP)):
        assert tell([stack_of(DUMP[:end])])


def test_what_this_python_writes_is_understood(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import faulthandler, threading, time
            def sleeping():
                time.sleep(30)
            threading.Thread(target=sleeping, daemon=True).start()
            def standing():
                faulthandler.dump_traceback(all_threads=True)
            standing()
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    threads = list(parse(done.stderr, str(tmp_path)))
    assert [str(t.frames[0]) for t in threads if t.is_current] == ["script.py:7 in standing"]
    assert "script.py:4 in sleeping" in [str(f) for t in threads for f in t.frames]


def test_a_session_that_does_not_run_has_no_stacks(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="s is not running"):
        take(session(tmp_path / "s"), "a test")


def test_a_supervisor_that_does_not_answer_is_told(tmp_path: Path) -> None:
    paths = session(tmp_path / "s")
    with held_lock(paths.node("host-a").lock), pytest.raises(SessionError, match="not answered"):
        take(paths, "a test", answer_s=0.2)
    (request,) = paths.node("host-a").requests.glob("*.json")
    assert json.loads(request.read_text())["mode"] == "stacks"


def test_an_answer_that_leads_out_of_the_session_is_not_followed(tmp_path: Path) -> None:
    # given a session made by somebody else, whose records point elsewhere
    (tmp_path / "secret").write_text(DUMP)
    paths = session(tmp_path / "s")
    node = paths.node("host-a")
    files = ("../secret", str(tmp_path / "secret"), "ranks/../../secret", None, 7)
    ranks = [{"rank": i, "file": file, "offset": 0} for i, file in enumerate(files)]
    answer = {"kind": "stacks", "ranks": [*ranks, "x", {"rank": "y"}], "silent": [9, "z"]}
    with held_lock(node.lock):
        # when it answers as soon as it is asked
        write(node.events, "supervisor")
        asked = threading.Thread(target=_answer, args=(paths, answer))
        asked.start()
        found = take(paths, "a test")
        asked.join()
    # then no rank has a stack
    assert [(stack.rank, stack.frames) for stack in found] == [(9, ())]


def test_a_rank_that_was_asked_at_the_last_moment_has_time_to_write(tmp_path: Path) -> None:
    # given a supervisor that answers late, and a rank that writes after that
    paths = session(tmp_path / "s")
    node = paths.node("host-a")
    file = paths.ranks / "0-0-1.stacks"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"")
    answer = {"kind": "stacks", "silent": []}
    answer["ranks"] = [{"rank": 0, "file": "ranks/0-0-1.stacks", "offset": 0}]

    def late() -> None:
        time.sleep(0.5)
        _answer(paths, answer)
        time.sleep(0.5)
        file.write_text(DUMP)

    with held_lock(node.lock):
        write(node.events, "supervisor")
        asked = threading.Thread(target=late)
        asked.start()
        # when the time to answer is over before the rank has written
        (stack,) = take(paths, "a test", answer_s=0.8)
        asked.join()
    # then it is not told as silent
    assert stack.problem is None and stack.frames


def _answer(paths: SessionPaths, answer: dict[str, object]) -> None:
    node = paths.node("host-a")
    until = time.monotonic() + 10
    while not list(node.requests.glob("*.json")) and time.monotonic() < until:
        time.sleep(0.01)
    with node.events.open("ab") as file:
        file.write(encode({**answer, "seq": 1, "mono_ns": time.monotonic_ns()}))
