"""Keys that start, stop and save: what is asked first, and what the controller is told."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from app.driving import LARGE, MEDIUM, SMALL, Driven, driven
from torchtop.app.controller import WorkloadEntry
from torchtop.app.messages import Follow


async def answered(d: Driven, key: str) -> None:
    await d.press(key)
    await d.until(lambda: len(d.app.screen_stack) == 1)


class TestStarting:
    async def test_a_digit_starts_at_once_when_nothing_runs(self, tmp_path: Path) -> None:
        async with driven(tmp_path, None) as d:
            await d.press("3")
            await d.until(lambda: d.asked("start") == [("start", "slow-loader", {})])
            await d.shows("slow-loader", "starting")

    async def test_samples_of_the_machine_that_come_late_do_not_hide_it(
        self, tmp_path: Path
    ) -> None:
        async with driven(tmp_path, None) as d:
            # when a session was started, and the idle view comes before that has been handled
            session = d.controller.start("slow-loader", {})
            d.app.post_message(Follow(session))
            d.app.post_message(Follow(d.controller.idle_directory(), idle=True))
            # then it is the session that is shown
            await d.shows("slow-loader", "starting")
            assert d.app.session == session

    async def test_a_digit_without_a_workload_says_so(self, tmp_path: Path) -> None:
        async with driven(tmp_path, None) as d:
            await d.press("9")
            await d.shows("no workload has the key 9")

    async def test_with_a_live_run_it_asks_then_stops_waits_and_starts(
        self, tmp_path: Path
    ) -> None:
        async with driven(tmp_path) as d:
            first = d.app.session
            await d.press("4")
            await d.shows("slow-loader is running. Stop it and start comm-heavy?")
            assert d.asked("stop") == []
            await answered(d, "enter")
            await d.until(lambda: d.asked("start"))
            kinds = [call[0] for call in d.controller.calls]
            assert kinds.index("stop") < kinds.index("wait_ended") < kinds.index("start")
            await d.shows("comm-heavy")
            assert d.app.session != first

    async def test_nothing_starts_while_the_old_run_is_still_there(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            d.controller.stop_takes = gone = threading.Event()
            await d.press("4")
            await answered(d, "y")
            await d.shows("stopping slow-loader ...")
            assert d.asked("start") == []
            gone.set()
            await d.until(lambda: d.asked("start"))
            await d.until(lambda: not d.app.view.busy)

    async def test_escape_leaves_the_run_alone(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("4")
            await d.shows("Stop it and start")
            await answered(d, "escape")
            assert d.asked("stop") == d.asked("start") == []

    async def test_a_refusal_is_told_in_one_line(self, tmp_path: Path) -> None:
        async with driven(tmp_path, None, MEDIUM) as d:
            d.controller.refuses = "torch is not installed: pip install torch [bold]"
            await d.press("1")
            await d.shows("torch is not installed: pip install torch [bold]")

    async def test_a_workload_with_a_problem_is_not_started(self, tmp_path: Path) -> None:
        async with driven(tmp_path, None) as d:
            d.app.main.request_start("mine", {})
            await d.shows("mine: train.py is not there")
            assert d.asked("start") == []

    async def test_the_picker_filters_and_starts(self, tmp_path: Path) -> None:
        async with driven(tmp_path, None) as d:
            await d.press("w", *"gradients")
            await d.until(lambda: "comm-heavy" in d.text and "straggler " not in boxed(d))
            await answered(d, "enter")
            await d.until(lambda: d.asked("start") == [("start", "comm-heavy", {})])

    async def test_s_starts_an_ended_session_again_with_its_options(self, tmp_path: Path) -> None:
        async with driven(tmp_path, "done") as d:
            await d.shows("done")
            await d.press("s")
            await d.until(lambda: d.asked("start"))
            options = {"batch": "256", "workers": "4", "amp": "false"}
            assert d.asked("start") == [("start", "compute-heavy", options)]

    async def test_s_with_a_live_run_starts_nothing(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("s")
            await d.shows("slow-loader is running")
            assert d.asked("start") == []

    async def test_r_asks_and_starts_the_same_again(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("r")
            await d.shows("Stop it and start it again?")
            await answered(d, "y")
            await d.until(lambda: d.asked("start"))
            assert d.asked("start")[0][1] == "slow-loader"


def boxed(d: Driven) -> str:
    """What stands within the frame of a modal."""
    return "\n".join(line.split("│")[1] for line in d.lines if line.count("│") == 2)


class TestStopping:
    async def test_x_asks_and_enter_stops(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("x")
            await d.shows("Stop slow-loader?", "kill it at once")
            assert d.asked("stop") == []
            await answered(d, "enter")
            await d.until(lambda: d.asked("stop") == [("stop", d.app.session, "stop")])

    async def test_k_in_the_question_kills(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("x")
            await answered(d, "k")
            await d.until(lambda: d.asked("stop") == [("stop", d.app.session, "kill")])

    async def test_the_note_about_a_kill_goes_when_all_is_gone(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            d.controller.stop_takes = gone = threading.Event()
            await d.press("x")
            await answered(d, "k")
            await d.shows("killing slow-loader ...")
            gone.set()
            await d.until(lambda: not d.app.view.busy)
            assert "killing" not in d.lines[-1]

    async def test_a_kill_does_not_wait_for_a_stop_under_way(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            d.controller.stop_takes = gone = threading.Event()
            await d.press("x")
            await answered(d, "x")
            await d.until(lambda: d.asked("wait_ended"))
            await d.press("x")
            await answered(d, "k")
            await d.until(lambda: ("stop", d.app.session, "kill") in d.controller.calls)
            gone.set()

    async def test_with_nothing_running_x_says_so(self, tmp_path: Path) -> None:
        async with driven(tmp_path, "done") as d:
            await d.press("x")
            await d.shows("nothing is running")
            assert d.asked("stop") == []


class TestLeaving:
    async def test_q_leaves_at_once_when_nothing_runs(self, tmp_path: Path) -> None:
        async with driven(tmp_path, "done") as d:
            await d.press("q")
            await d.until(lambda: d.app._exit)
            assert d.app.return_value == 0

    async def test_q_asks_and_enter_detaches(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("q")
            await d.shows("detach: leave, and let it run")
            assert not d.app._exit
            await d.press("enter")
            await d.until(lambda: d.app._exit)
            assert d.asked("stop") == []

    async def test_ctrl_c_asks_too_and_escape_stays(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("ctrl+c")
            await d.shows("detach: leave")
            await answered(d, "ctrl+c")
            assert not d.app._exit

    async def test_x_in_the_question_stops_and_then_leaves(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("q", "x")
            await d.until(lambda: d.app._exit)
            assert d.asked("stop") == [("stop", d.app.session, "stop")]


class TestSessions:
    async def test_brackets_go_through_the_sessions(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            from app.made_session import CASES, make

            make(d.controller.root / "20261128-older", CASES["gpt"], 12)
            await d.press("left_square_bracket")
            await d.shows("gpt2-small")
            await d.press("right_square_bracket")
            await d.shows("slow-loader")
            await d.press("right_square_bracket")
            await d.shows("no newer session")

    async def test_brackets_in_haste_are_all_counted(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            from app.made_session import CASES, make

            for day in range(21, 28):
                make(d.controller.root / f"202611{day}-older", CASES["gpt"], 3)
            d.burst(*"[[[[[")
            await d.until(lambda: d.app.session and d.app.session.name == "20261123-older")
            d.burst(*"]]]")
            await d.until(lambda: d.app.session and d.app.session.name == "20261126-older")

    async def test_capital_s_saves_and_tells_where(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=MEDIUM) as d:
            await d.press("S")
            await d.until(lambda: d.asked("save") == [("save", d.app.session)])
            await d.shows("saved ")

    async def test_what_a_file_names_later_is_picked_and_has_its_key(self, tmp_path: Path) -> None:
        async with driven(tmp_path, None) as d:
            later = WorkloadEntry(9, "written-later", "of a new file", "file")
            # a digit that nothing had
            d.controller.catalog += (later,)
            d.controller.unread["written-later"] = "torchrun train.py"
            await d.press("9")
            await d.shows("written-later is named by a file")
            await answered(d, "escape")
            # and the list, with what was marked still marked
            d.controller.catalog = (replace(later, name="another", key=1), *d.controller.catalog)
            await d.press("w", "down")
            await d.shows("another")
            await d.until(lambda: any("▸ 2 compute-heavy" in line for line in d.lines))
            # while what has gone from its file is no more offered
            d.controller.catalog = d.controller.catalog[:3]
            await answered(d, "escape")
            await d.press("w")
            await d.until(lambda: "straggler" not in d.text)

    async def test_o_shows_the_options_in_force(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=MEDIUM) as d:
            await d.press("o")
            await d.shows("batch", "256", "nproc", "/home/ana/train")
            await answered(d, "o")

    async def test_o_marks_what_was_set_and_lists_the_defaults(self, tmp_path: Path) -> None:
        async with driven(tmp_path, size=MEDIUM) as d:
            await d.press("o")
            await d.shows("● set, the others by default")
            values = {name: mark for mark, name in (_option(line) for line in d.lines) if name}
            assert values["batch 256"] and values["amp false"]
            assert values["seed 7"] is False
            assert values["synthetic_size cuda"] is False  # as it is on that session's device
            assert "batch 64" not in values

    async def test_hostile_names_are_text_in_questions_and_toasts(self, tmp_path: Path) -> None:
        async with driven(tmp_path, "hostile") as d:
            await d.press("x")
            await d.shows("[bold red]")
            await answered(d, "escape")
            d.app.tell("\x1b[2J[bold]")
            await d.shows("·[2J[bold]")
            assert all(line.isprintable() for line in d.lines)


def _option(line: str) -> tuple[bool, str]:
    """A line of the box of options: whether it is marked, and its words; no words for others."""
    words = line.split("│")[1].split() if line.count("│") == 2 else []
    return "●" in words, " ".join(word for word in words if word != "●")


class TestFailure:
    @pytest.mark.parametrize("size", [SMALL, LARGE])
    async def test_f_shows_all_of_a_failure(self, tmp_path: Path, size: tuple[int, int]) -> None:
        async with driven(tmp_path, "failed", size) as d:
            await d.shows("✗ FAILED", "rank 1 ran out of GPU memory", "f all of it", "f failure")
            await d.press("f")
            await d.shows(
                "what to try", "mixed precision", "traceback", 'line 61, in main',
            )  # fmt: skip
            await answered(d, "f")

    async def test_without_a_failure_f_says_so(self, tmp_path: Path) -> None:
        async with driven(tmp_path) as d:
            await d.press("f")
            await d.shows("nothing has failed")
            assert "failure" not in d.lines[-1]
