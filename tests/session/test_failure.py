"""What is told of a failure: where, the traceback without torchtop, the rest of the log, advice."""

from __future__ import annotations

from typing import Any

import pytest

from torchtop.session.failure import failure_of, without_own_frames
from torchtop.session.report import plain, render_markdown
from torchtop.session.summary import build_summary

STAGE = "/state/sessions/x/stage"
TRACE = f"""\
Traceback (most recent call last):
  File "/home/ana/train/train.py", line 19, in <module>
    main()
  File "{STAGE}/_torchtop/probe/hooks.py", line 89, in backward
    return plain(*args)
           ^^^^^^^^^^^^
  File "/home/ana/train/lib/loss.py", line 7, in loss
    raise ValueError("nan")
  File "/env/lib/python3.11/site-packages/torch/_tensor.py", line 623, in backward
    torch.autograd.backward(
ValueError: nan

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "{STAGE}/rank.py", line 16, in <module>
    run(globals())
RuntimeError: late
"""
META = {"cwd": "/home/ana/train", "python": "/env/bin/python"}


def told(cause: str = "exception", message: str = "", **more: Any) -> Any:
    return failure_of({"cause": cause, "message": message, "rank": 1, **more}, META)


def test_frames_of_torchtop_are_left_out_with_their_source_and_marks() -> None:
    lines = without_own_frames(TRACE)
    assert not [line for line in lines if "stage" in line or "plain(*args)" in line]
    assert not [line for line in lines if "^^^" in line or "run(globals())" in line]
    kept = [line for line in TRACE.splitlines() if line in lines]
    assert lines == kept
    assert [line for line in lines if not line.startswith(" ")] == [
        "Traceback (most recent call last):", "ValueError: nan", "",
        "During handling of the above exception, another exception occurred:", "",
        "Traceback (most recent call last):", "RuntimeError: late",
    ]  # fmt: skip


def test_where_is_the_innermost_line_of_the_users_own() -> None:
    assert told(traceback=TRACE).where == "lib/loss.py:7 in loss"
    assert told(traceback='  File "/home/ana/train/t.py", line 3\n    f(:\n').where == "t.py:3"
    in_library = '  File "/env/lib/python3.11/site-packages/torch/x.py", line 1, in f\n'
    assert told(traceback=in_library).where == "torch/x.py:1 in f"
    assert told().where is None


def test_the_log_is_told_as_far_as_it_is_not_in_the_traceback() -> None:
    log = ["warming up", *(f"[rank1]: {line}" for line in TRACE.splitlines() if line), "bye"]
    failure = told(traceback=TRACE, log_tail=log)
    assert failure.log == ("warming up", "bye")
    assert len(told(log_tail=[str(i) for i in range(99)]).log) == 12


@pytest.mark.parametrize(
    ("exit", "advice"),
    [
        ({"cause": "out_of_memory", "message": "rank 1 ran out of GPU memory"}, "smaller batch"),
        ({"cause": "host_out_of_memory"}, "fewer loader workers"),
        ({"cause": "disk_full"}, "df -h"),
        ({"cause": "loader_killed"}, "num_workers=0"),
        ({"cause": "timeout"}, "collective that not all ranks call"),
        ({"cause": "launcher_killed"}, "systemd-oomd"),
        ({"cause": "launch_failed"}, "torchtop doctor"),
        ({"cause": "lost"}, "torchtop stop"),
        ({"cause": "signal", "signal": "SIGKILL"}, "journalctl -k"),
        ({"cause": "signal", "signal": "SIGSEGV"}, "PYTHONFAULTHANDLER=1"),
        ({"cause": "signal", "signal": "SIGABRT"}, "last lines of its log"),
        ({"cause": "exit_code", "code": 0}, "same number of batches"),
        ({"cause": "exit_code", "code": 7}, "left by itself"),
        ({"cause": "exit_code", "code": 2, "log_tail": ["usage: t.py"]}, "refused its arguments"),
        ({"message": "ModuleNotFoundError: No module named 'cv2.gapi'"}, "install cv2 for /env/"),
        ({"message": "FileNotFoundError: [Errno 2] ..."}, "start at /home/ana/train"),
        ({"message": "EOFError: EOF when reading a line"}, "debug in one process"),
        ({"message": "Expected to have finished reduction in the prior iteration"}, "find_unused"),
        ({"message": "Address already in use"}, "MASTER_PORT"),
        ({"message": "CUDA error: invalid device ordinal"}, "LOCAL_RANK"),
        ({"message": "Unexpected bus error: insufficient shared memory (shm)"}, "--shm-size"),
    ],
)
def test_what_to_try_fits_the_cause(exit: dict[str, Any], advice: str) -> None:
    first = failure_of({"cause": "exception", "rank": 1, **exit}, META).advice
    assert any(advice in told for told in first), first


def test_an_error_of_the_scripts_own_gets_no_made_up_advice() -> None:
    assert told(message="rank 1 failed: ValueError: nan", traceback=TRACE).advice == ()


def test_an_old_record_without_a_message_is_told_in_words() -> None:
    assert told("signal", signal="SIGSEGV").headline == "rank 1 was ended by a signal (SIGSEGV)"
    assert failure_of({}, {}).headline == "failed"


@pytest.mark.parametrize("junk", [None, 7, "x", [], {}, [None, 3], "\x1b[2J"])
def test_an_odd_record_is_told_all_the_same(junk: Any) -> None:
    names = ("cause", "rank", "code", "signal", "message", "traceback", "log_tail")
    failure = failure_of(dict.fromkeys(names, junk), {"cwd": junk, "python": junk})
    assert isinstance(failure.headline, str)


def test_in_a_report_it_is_text_whatever_it_says(tmp_path: Any) -> None:
    from session.made import session, write

    paths = session(tmp_path / "s", cwd="/home/ana/train")
    trace = TRACE.replace("nan", "``` <b>a\\*b</b> ```` \x1b[2J").replace("loss.py", "a`b.py")
    exit = {"kind": "exit", "cause": "exception", "rank": 1, "message": "x | <i>", "code": 1}
    write(
        paths.node("host-a").events, "supervisor",
        {**exit, "traceback": trace, "log_tail": ["one"]}, {"kind": "end", "status": "failed"},
    )  # fmt: skip
    text = render_markdown(build_summary(paths))
    lines = text.splitlines()
    fences = [i for i, line in enumerate(lines) if line and not line.strip("`")]
    # the traceback is fenced by more backticks than it has
    assert [lines[i] for i in fences] == ["`````", "`````", "```", "```"]
    assert all(char.isprintable() for line in lines for char in line)
    outside = lines[: fences[0]] + lines[fences[1] + 1 : fences[2]] + lines[fences[3] + 1 :]
    assert "<b>" not in "\n".join(outside) and "<i>" not in "\n".join(outside)
    # on a terminal escapes are gone, and a backslash of the traceback is not
    assert "x | <i>" in plain(text) and "a\\*b" in plain(text)
