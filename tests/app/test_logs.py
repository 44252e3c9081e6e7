from __future__ import annotations

from pathlib import Path

import pytest

from app.made_session import HOSTILE
from torchtop.app.logs import COMMAND, LogLine, LogPage, LogTail, neutralise
from torchtop.app.panes.logs import body, matching, most_back, nothing
from torchtop.app.text import broken, plain, row_width


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\n", "plain"),
        ("\x1b[31mred\x1b[0m text", "red text"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP+q544e\x1b\\dcs", "dcs"),
        ("\x1b[?1049h\x1b[2J\x1b[Hgone", "gone"),
        (" 10%|#   |\r 20%|##  |\r", " 20%|##  |"),
        ("done\r\n", "done"),
        ("abc\b\bX", "aX"),
        ("\b\b\b", ""),
        ("\x1b", "·"),
        ("[bold]not markup[/]", "[bold]not markup[/]"),
        ("tab\tstop", "tab  stop"),
    ],
)
def test_a_raw_line_becomes_what_a_terminal_would_leave(raw: str, shown: str) -> None:
    assert neutralise(raw) == shown


@pytest.mark.fault(24, "tqdm, 5 MB, binary, OSC, markup", "one line, truncated, neutralised")
def test_nothing_of_a_hostile_line_reaches_the_terminal() -> None:
    assert neutralise(HOSTILE.encode("utf-8", "replace").decode()).isprintable()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for rank in (0, 1):
        (tmp_path / "run_1" / "attempt_0" / str(rank)).mkdir(parents=True)
    return tmp_path


def write(logs: Path, rank: int, data: bytes, stream: str = "stdout") -> None:
    with (logs / "run_1" / "attempt_0" / str(rank) / f"{stream}.log").open("ab") as file:
        file.write(data)


def test_lines_are_taken_once_and_by_rank(logs: Path) -> None:
    tail = LogTail(logs)
    write(logs, 0, b"one\ntwo\n")
    write(logs, 1, b"warning\n", "stderr")
    first = tail.poll()
    write(logs, 0, b"three\n")
    assert first.lines == (
        LogLine(0, "stdout", "one"),
        LogLine(0, "stdout", "two"),
        LogLine(1, "stderr", "warning"),
    )
    assert [line.text for line in tail.poll().lines] == ["one", "two", "warning", "three"]
    assert first.ranks == (0, 1)


def test_an_unchanged_log_is_the_same_page(logs: Path) -> None:
    tail = LogTail(logs)
    write(logs, 0, b"one\n")
    assert tail.poll() is tail.poll()


@pytest.mark.fault(24, "tqdm, 5 MB, binary, OSC, markup", "one line, truncated, neutralised")
def test_a_progress_bar_is_one_line_that_changes(logs: Path) -> None:
    tail = LogTail(logs)
    for percent in (10, 20, 30):
        write(logs, 0, b"\r%d%%|##" % percent, "stderr")
        page = tail.poll()
    assert [line.text for line in page.lines] == ["30%|##"]


def test_a_torn_character_is_whole_when_its_rest_comes(logs: Path) -> None:
    tail = LogTail(logs)
    write(logs, 0, "é".encode()[:1])
    tail.poll()
    write(logs, 0, "é".encode()[1:] + b"\n")
    assert [line.text for line in tail.poll().lines] == ["é"]


@pytest.mark.fault(
    23, "100k log lines a second from each rank", "keys within 100 ms; memory bounded"
)
def test_a_log_of_any_length_takes_fixed_memory(logs: Path) -> None:
    tail = LogTail(logs)
    for block in range(30):
        write(logs, 0, b"".join(b"line %d\n" % (block * 1000 + i) for i in range(1000)))
        page = tail.poll()
    assert len(page.lines) == 2000
    assert page.lines[-1].text == "line 29999"


def test_of_lines_that_are_not_kept_none_is_looked_at(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []
    monkeypatch.setattr("torchtop.app.logs.neutralise", lambda line: looked_at.append(line) or line)
    tail = LogTail(logs)
    write(logs, 0, b"first\n")
    tail.poll()
    write(logs, 0, b"\n" * 200_000)
    assert tail.poll().total == 200_001
    assert len(looked_at) < 2100


@pytest.mark.fault(24, "tqdm, 5 MB, binary, OSC, markup", "one line, truncated, neutralised")
def test_a_line_without_end_takes_fixed_memory(logs: Path) -> None:
    tail = LogTail(logs)
    for _ in range(40):
        write(logs, 0, b"x" * 100_000)
        page = tail.poll()
    assert len(page.lines[0].text) <= 4096


def test_a_long_log_is_opened_at_its_end(logs: Path) -> None:
    write(logs, 0, b"".join(b"line %d\n" % i for i in range(100_000)))
    page = LogTail(logs).poll()
    assert page.lines[-1].text == "line 99999"
    assert all(line.text.startswith("line ") for line in page.lines)


def test_a_log_that_starts_anew_is_read_anew(logs: Path) -> None:
    tail = LogTail(logs)
    write(logs, 0, b"a long first line\n")
    tail.poll()
    (logs / "run_1" / "attempt_0" / "0" / "stdout.log").write_bytes(b"new\n")
    assert tail.poll().lines[-1].text == "new"


def test_no_logs_are_an_empty_page(tmp_path: Path) -> None:
    assert LogTail(tmp_path / "nowhere").poll() == LogPage()


LINES = tuple(LogLine(i % 2, "stdout", f"Line {i}") for i in range(20))


def test_lines_are_chosen_by_rank_and_by_text() -> None:
    page = LogPage(LINES, (0, 1), 20)
    assert len(matching(page, 1, "")) == 10
    assert matching(page, None, "line 1")[0].text == "Line 1"
    assert matching(page, 0, "line 13") == []


def test_the_end_is_shown_or_a_place_before_it() -> None:
    assert plain(body(LINES, True, 0, 30, 3)[-1]).split() == ["r1", "Line", "19"]
    assert plain(body(LINES, True, 5, 30, 3)[-1]).split() == ["r0", "Line", "14"]


def test_standard_error_is_marked_by_a_sign() -> None:
    assert "!" in plain(body([LogLine(0, "stderr", "x")], True, 0, 30, 3)[0])


def test_long_lines_are_cut() -> None:
    rows = body([LogLine(0, "stdout", "x" * 5000)], True, 0, 40, 3)
    assert row_width(rows[0]) == 40


@pytest.mark.parametrize("text", ["x" * 95, "a word and another " * 6, "数据" * 30, "", "short"])
def test_a_wrapped_line_is_whole(text: str) -> None:
    pieces = broken(text, 40)
    assert "".join(pieces) == text
    rows = body([LogLine(0, "stdout", text)], False, 0, 42, 50, wrapped=True)
    assert len(rows) == len(pieces)
    assert {row_width(row) for row in rows} == {42}


def test_the_end_of_a_wrapped_log_is_in_view() -> None:
    lines = [LogLine(0, "stdout", f"{i} " + "x" * 60) for i in range(5)]
    rows = [plain(row) for row in body(lines, False, 0, 40, 3, wrapped=True)]
    assert len(rows) == 3 and rows[1].split()[0] == "4"


@pytest.mark.parametrize("wrapped", [False, True])
def test_scrolling_back_ends_with_the_first_line_at_the_top(wrapped: bool) -> None:
    lines = [LogLine(0, "stdout", f"{i} " + "x" * 60) for i in range(20)]
    back = most_back(lines, False, 40, 6, wrapped)
    rows = [plain(row).split()[0] for row in body(lines, False, back, 40, 6, wrapped)]
    assert len(rows) == 6 and rows[0] == "0"
    assert most_back(lines[:2], False, 40, 6, wrapped) == 0


def test_it_is_told_why_there_are_no_lines() -> None:
    page = LogPage(LINES, (0, 1), 20)
    assert nothing(LogPage(), None, "") == "no output yet"
    assert nothing(LogPage(), None, "x") == "no output yet"
    assert nothing(page, None, "nan") == "no line contains nan"
    assert nothing(page, 1, "nan") == "no line of rank 1 contains nan"
    assert nothing(page, 1, "") == "no output of rank 1 yet"
    assert "end of the replay" in nothing(LogPage(withheld=True), None, "")


def test_what_a_command_writes_is_told_from_its_ranks(tmp_path: Path) -> None:
    for folder, text in (("command/attempt_0/0", "begins"), ("ranks/attempt_0/0", "trains")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "stdout.log").write_text(text + "\n")

    page = LogTail(tmp_path).poll()

    assert page.ranks == (COMMAND, 0)
    assert {(line.rank, line.text) for line in page.lines} == {(COMMAND, "begins"), (0, "trains")}
    rows = [plain(row).rstrip() for row in body(page.lines, True, 0, 20, 5)]
    assert sorted(rows) == ["cmd  begins", "r0   trains"]
    assert nothing(page, COMMAND, "") == "no output of the command yet"
