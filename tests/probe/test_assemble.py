"""From markers to steps: a pure function, tried on the loops that people write."""

from __future__ import annotations

import random

import pytest

from probe.marks import MS, Stream, phases, total_us

BATCH = "D0:1 D1:5 B0:10 BC:20 B1:4 O0:2 O1:3"
MICRO = "D0:1 D1:5 B0:10 BC:20"


def ends_of(stream: Stream) -> list[int]:
    return [row["end_ns"] for row in stream.rows]


def host_times(stream: Stream, code: str) -> list[int]:
    return [mark.host_ns for mark in stream.marks if mark.code == code]


def test_a_plain_loop_gives_one_step_a_batch() -> None:
    stream = Stream()
    stream.play(" ".join([BATCH] * 5))
    stream.play("D0 DX")  # the end of the epoch

    # The first step began before it was seen.
    assert stream.steps == [1, 2, 3, 4]
    for row in stream.rows:
        assert phases(row) == {
            "data": 5,
            "forward": 10,
            "backward": 20,
            "exposed_comm": 4,
            "pre_optimizer": 2,
            "optimizer": 3,
            "other": 1,
        }
        assert (row["samples"], row["tokens"], row["host_us"]) == (8, None, 45_000)
        assert row["data_host_us"] == 5_000
    assert ends_of(stream) == host_times(stream, "B1")[1:]


def test_a_full_launch_queue_is_no_wait_for_a_batch() -> None:
    stream = Stream()
    for _ in range(4):
        for word in BATCH.split():
            stream.play(word)
            if word.startswith("D0"):  # its record waited for room in the queue
                stream.marks[-1].held_ns = 4 * MS
    stream.play("D0")

    # Then it is told where it passed: before the fetch.
    for row in stream.rows:
        assert row["data_us"] == 5_000
        assert (row["data_host_us"], row["other_host_us"]) == (1_000, 5_000)
        assert row["host_us"] == sum(row[name + "_host_us"] for name in phases(row))


def test_the_last_step_counts_although_no_batch_follows() -> None:
    stream = Stream()
    stream.play(" ".join([BATCH] * 3))
    assert stream.steps == [1]

    stream.assembler.finish()
    stream.assembler.finish()

    assert stream.steps == [1, 2]


def test_a_step_that_was_cut_off_is_no_step() -> None:
    stream = Stream()
    stream.play(" ".join([BATCH] * 2) + " " + MICRO + " B1")

    stream.assembler.finish()

    assert stream.steps == [1]


def test_the_step_under_way_is_known_while_it_runs() -> None:
    stream = Stream()
    stream.play("B0 BC B1 O0 O1")  # the first batch came before the probe was armed
    assert stream.assembler.step == 0
    stream.play("D0")
    assert stream.assembler.step == 1
    stream.play("D1 B0 BC B1 O0 O1 D0")
    assert stream.assembler.step == 2


@pytest.mark.parametrize(
    "micro",
    [
        f"{MICRO} B1! {MICRO} B1! {MICRO} B1! {MICRO} B1!",  # synchronised each time
        f"{MICRO} B1- {MICRO} B1- {MICRO} B1- {MICRO} B1!",  # under no_sync but the last
        f"{MICRO} B1? {MICRO} B1? {MICRO} B1? {MICRO} B1?",  # no DDP at all
    ],
)
def test_all_micro_batches_of_an_accumulation_belong_to_the_step(micro: str) -> None:
    stream = Stream()
    for _ in range(4):
        stream.play(f"{micro} O0:2 O1:3")
    stream.play("D0 DX")

    assert stream.steps == [1, 2, 3]
    for row in stream.rows:
        assert row["samples"] == 32
        assert phases(row)["data"] == 20
        assert phases(row)["forward"] == 40
        assert phases(row)["backward"] == 80


def test_batches_of_an_accumulation_that_are_fetched_up_front_belong_to_the_step() -> None:
    stream = Stream()
    for _ in range(3):
        stream.play("D0 D1:5 " * 100 + "B0 BC B1- " * 99 + "B0 BC B1! O0 O1")
    stream.play("D0 DX")

    assert stream.steps == [1, 2]
    assert stream.rows[0]["samples"] == 800
    assert phases(stream.rows[0])["data"] == 500


def test_accumulations_may_be_longer_than_the_guess_for_loops_without_an_optimizer() -> None:
    stream = Stream()
    for _ in range(3):
        stream.play(f"{MICRO} B1- " * 99 + f"{MICRO} B1! O0 O1")
    stream.play(f"{MICRO} B1! " * 100 + "O0 O1 D0 DX")

    assert stream.steps == [1, 2, 3]


def test_a_gan_with_a_loader_is_one_step_a_batch() -> None:
    stream = Stream()
    stream.assembler.expect_loader()
    for _ in range(4):
        stream.play("D0 D1:5 B0:1 BC:2 B1!:3 O0:4 O1:5 B0:6 BC:7 B1!:8 O0:9 O1:10")
    stream.play("D0 DX")

    assert stream.steps == [1, 2, 3]
    row = stream.rows[0]
    assert ends_of(stream) == host_times(stream, "B1")[3::2]
    assert phases(row) == {
        "data": 5,
        "forward": 7,
        "backward": 9,
        "exposed_comm": 11,
        "pre_optimizer": 13,
        "optimizer": 15,
        "other": 1,
    }


def test_a_gan_without_a_loader_is_one_step_a_backward() -> None:
    stream = Stream()
    for _ in range(3):
        stream.play("B0:1 BC:2 B1!:3 O0:4 O1:5 B0:6 BC:7 B1!:8 O0:9 O1:10")

    assert stream.steps == [1, 2, 3, 4]
    assert [total_us(row) for row in stream.rows] == [30_000, 25_000, 30_000, 25_000]


def test_without_ddp_a_step_ends_with_its_optimizer() -> None:
    stream = Stream()
    stream.play(" ".join([BATCH] * 4), sync=None)
    stream.play("D0 DX")

    assert stream.steps == [1, 2, 3]
    assert ends_of(stream) == host_times(stream, "O1")[1:]
    assert phases(stream.rows[0])["optimizer"] == 3


def test_without_ddp_a_step_of_two_optimizers_ends_with_the_second() -> None:
    stream = Stream()
    stream.assembler.expect_loader()
    for _ in range(3):
        stream.play("D0 D1 B0 BC B1 O0 O1 B0 BC B1 O0 O1", sync=None)
    stream.play("D0 DX")

    assert stream.steps == [1, 2]
    assert ends_of(stream) == host_times(stream, "O1")[3::2]


def test_where_no_optimizer_is_seen_a_step_ends_with_the_next_batch() -> None:
    stream = Stream()
    stream.play("D0 D1:5 B0 BC B1 " * 80, sync=None)

    # The first 64 passes might have been an accumulation.
    assert len(stream.rows) == 80 - 64 - 1
    assert all(total_us(row) == 9_000 for row in stream.rows)
    assert ends_of(stream) == host_times(stream, "D0")[65:]


def test_where_no_optimizer_is_seen_but_ddp_is_micro_batches_are_told_by_their_sync() -> None:
    stream = Stream()
    for _ in range(80):
        stream.play("D0 D1 B0 BC B1- D0 D1 B0 BC B1!")

    assert all(row["samples"] == 16 for row in stream.rows[1:-1])


def test_an_optimizer_that_calls_backward_itself() -> None:
    """LBFGS: one hook before, several closures, one after."""
    stream = Stream()
    for _ in range(4):
        stream.play("D0 D1:5 O0:1 B0:2 BC:3 B1:4 B0:5 BC:6 B1:7 B0:8 BC:9 B1:10 O1:11", sync=None)
    stream.play("D0 DX")

    assert stream.steps == [1, 2, 3]
    row = stream.rows[0]
    assert phases(row) == {
        "data": 5,
        "forward": 16,
        "backward": 18,
        "exposed_comm": 21,
        "optimizer": 11,
        "other": 1,
    }
    assert total_us(row) == 72_000


def test_the_same_under_ddp_ends_with_the_last_synchronisation() -> None:
    stream = Stream()
    for _ in range(4):
        stream.play("D0 D1 O0 B0 BC B1 B0 BC B1 O1", sync=True)
    stream.play("D0 DX")

    assert stream.steps == [1, 2, 3]
    assert ends_of(stream) == host_times(stream, "B1")[3::2]


def test_a_step_that_a_scaler_skips_is_a_step() -> None:
    """The runtime marks the end of the optimizer in its place."""
    stream = Stream()
    stream.play(f"{BATCH} {BATCH} {MICRO} B1 O1:9 {BATCH} D0 DX")

    assert stream.steps == [1, 2, 3]
    assert phases(stream.rows[2])["optimizer"] == 9  # after the end of step 2


def test_evaluation_in_between_is_other_and_counts_no_samples() -> None:
    stream = Stream()
    stream.play(f"{BATCH} {BATCH}")
    stream.play("E0:3 E1:50 E0:3 E1:50 E0:3 DX:1")
    stream.play(f"{BATCH} {BATCH} D0 DX")

    assert stream.steps == [1, 2, 3]
    assert phases(stream.rows[1]) == {**phases(stream.rows[0]), "other": 1 + 110}
    assert [row["samples"] for row in stream.rows] == [8, 8, 8]


def test_the_end_of_an_epoch_neither_ends_a_step_twice_nor_counts_as_data() -> None:
    stream = Stream()
    for _ in range(2):
        stream.play(f"{BATCH} {BATCH} {BATCH} D0:1 DX:40")
    stream.play("D0")

    assert stream.steps == [1, 2, 3, 4, 5]
    assert phases(stream.rows[2])["data"] == 5
    assert phases(stream.rows[2])["other"] == 1 + 40 + 1


def test_a_batch_that_is_fetched_ahead_moves_between_steps_and_not_out_of_the_sum() -> None:
    """As accelerate does: batch k + 1 is asked for before batch k is trained on."""
    stream = Stream()
    for _ in range(2):
        stream.play(f"D0 D1:5 {BATCH} {BATCH} {BATCH} D0 DX B0:10 BC:20 B1:4 O0:2 O1:3")
    stream.play("D0")

    assert stream.steps == [1, 2, 3, 4, 5, 6, 7]
    assert [row["samples"] for row in stream.rows] == [8, 8, None, 16, 8, 8, None]


def test_a_batch_that_is_skipped_belongs_to_the_next_step() -> None:
    stream = Stream()
    stream.play(f"{BATCH} {BATCH} D0:1 D1:5 {BATCH} D0 DX")

    assert stream.steps == [1, 2]
    assert phases(stream.rows[1])["data"] == 10
    assert phases(stream.rows[1])["other"] == 1 + 1


def test_backward_passes_nested_in_another_are_part_of_it() -> None:
    """Reentrant checkpointing: the wait for communication is within a nested pass."""
    stream = Stream()
    for _ in range(3):
        stream.play("D0 D1:5 B0:1 nBC:2 nB1:0 nBC:2 nB1:30 BC:4 B1:0 O0 O1")
    stream.play("D0 DX")

    assert phases(stream.rows[0])["exposed_comm"] == 30
    assert phases(stream.rows[0])["backward"] == 8


def test_an_optimizer_within_an_optimizer_is_one() -> None:
    stream = Stream()
    stream.play("D0 D1 B0 BC B1 O0:1 O0:2 O1:3 O1:4 " * 3)
    stream.play("D0 DX")

    assert stream.steps == [1, 2]
    assert phases(stream.rows[0])["optimizer"] == 9


def test_a_backward_that_raised_is_followed_by_the_next_batch() -> None:
    stream = Stream()
    stream.play(f"{BATCH} {BATCH} D0 D1 B0 {BATCH} {BATCH} D0 DX")

    assert stream.steps == [1, 2, 3]
    assert [total_us(row) for row in stream.rows] == [45_000, 48_000, 45_000]


def test_training_that_leaves_its_loader_goes_on_in_steps() -> None:
    stream = Stream()
    stream.play(f"{BATCH} {BATCH} {BATCH}")
    stream.play("B0:10 BC:20 B1:4 O0:2 O1:3 " * 100)

    later = [row for row in stream.rows if row["step"] > 2]
    assert len(later) == 100 - 64
    assert all(total_us(row) == 39_000 for row in later)  # and none of all those in between
    assert [row["step"] for row in later] == list(range(3, 39))


def test_training_that_comes_back_to_its_loader_is_waited_for_longer() -> None:
    """A hundred steps on each batch, as reinforcement learning takes them, are one step."""
    stream = Stream()
    for _ in range(6):
        stream.play("D0 D1:5 " + "B0:10 BC:20 B1:4 O0:2 O1:3 " * 100)
    stream.play("D0 DX")

    whole = [row for row in stream.rows if total_us(row) > 3_000_000]
    assert len(whole) >= 4
    assert {total_us(row) for row in whole[1:]} == {3_906_000}


def test_lags_are_those_at_the_end_of_forward_and_of_backward() -> None:
    stream = Stream()
    for _ in range(3):
        stream.mark("D0")
        stream.mark("D1", extra=(4, 512))
        stream.mark("B0", lag_ns=7_000)
        stream.mark("BC", lag_ns=9_000)
        stream.mark("B1", extra=True)
        stream.mark("O0")
        stream.mark("O1")
    stream.mark("D0")

    row = stream.rows[0]
    assert (row["lag_forward_us"], row["lag_backward_us"], row["lag_width_us"]) == (7, 9, 3)
    assert (row["samples"], row["tokens"]) == (4, 512)


@pytest.mark.parametrize("seed", range(20))
def test_phases_tile_whatever_the_loop_does(seed: int) -> None:
    """The sum of the columns is the time from one end of a step to the next, to the microsecond."""
    chance = random.Random(seed)
    stream = Stream()
    codes = ["D0", "D1", "DX", "E0", "E1", "B0", "nBC", "nB1", "BC", "B1", "O0", "O1"]
    for _ in range(4000):
        code = chance.choice(codes)
        extra = chance.choice([True, False, None]) if code == "B1" else None
        stream.mark(code, chance.random() * 5, extra)

    ends = {mark.host_ns: mark.device_ns for mark in stream.marks}
    assert len(stream.rows) > 50
    for before, row in zip(stream.rows, stream.rows[1:], strict=False):
        assert row["step"] == before["step"] + 1
        took_ns = ends[row["end_ns"]] - ends[before["end_ns"]]
        assert total_us(row) == took_ns // 1000
        assert row["host_us"] == (row["end_ns"] - before["end_ns"]) // 1000
        assert all(value >= 0 for value in phases(row).values())


def test_a_millisecond_is_a_million() -> None:
    assert MS == 10**6


def test_an_optimizer_that_hides_is_given_up_soon() -> None:
    # Given a step that is compiled as a whole, of which only the backward pass shows
    stream = Stream()
    stream.assembler.expect_no_optimizer()
    stream.play(" ".join(["D0 D1 B0 BC B1"] * 20), sync=None)

    # Then those that were held together are counted, and those after them told
    assert stream.steps == list(range(8, 19))
    assert phases(stream.rows[-1]) == dict.fromkeys(("data", "forward", "backward"), 1) | {
        "exposed_comm": 1,
        "other": 1,
    }


def test_an_optimizer_that_hides_later_is_given_up_too() -> None:
    # Given a loop that compiles its step after a while
    stream = Stream()
    stream.play(" ".join([BATCH] * 10), sync=None)
    stream.play(" ".join(["D0 D1 B0 BC B1"] * 100), sync=None)

    assert len(stream.steps) > 40


def test_more_micro_batches_than_usual_are_one_step_still() -> None:
    stream = Stream()
    accumulation = " ".join([MICRO + " B1"] * 100) + " O0 O1"
    stream.play(" ".join([accumulation] * 4), sync=None)

    # The first could not be known.
    assert stream.steps[-2:] == [stream.steps[-3] + 1, stream.steps[-3] + 2]
    assert [row["host_us"] // 1000 for row in stream.rows[-2:]] == [3702, 3702]


def test_evaluation_that_fetches_with_gradients_on_is_found_out_by_the_backward() -> None:
    # Given an evaluation (source 7) of three batches between two batches of training (source 1)
    stream = Stream()
    stream.play(" ".join([BATCH] * 3), sync=None)
    for code in ("D0", "D1") * 3 + ("D0", "DX"):
        stream.mark(code, 10.0, 7 if code == "D0" else (8, None))
    stream.mark("D0", 1.0, 1)
    stream.mark("D1", 4.0, (8, None))

    evaluated = stream.assembler.fed([7], drives=True)
    stream.play("B0:5 BC:3 B1:2 O0:1 O1:2 D0:1", sync=None)

    row = stream.rows[-1]
    assert phases(row) | {"other": 0} == {
        "data": 4,
        "forward": 5,
        "backward": 3,
        "exposed_comm": 2,
        "pre_optimizer": 1,
        "optimizer": 2,
        "other": 0,
    }
    assert row["other_us"] == 81_000
    assert row["samples"] == 8
    first, last = evaluated or (0, 0)
    assert last - first == 71 * MS


def test_the_last_batch_of_a_loader_that_fetches_ahead_has_a_forward() -> None:
    stream = Stream()
    stream.play("D0 D1:5 " + " ".join(["D0 D1:5 B0:6 BC B1 O0 O1"] * 3), sync=None)
    stream.play("D0 DX B0:6 BC B1 O0 O1 D0", sync=None)

    assert [phases(row)["forward"] for row in stream.rows] == [6, 6, 6]
    assert "data" not in phases(stream.rows[-1])


def test_a_checkpoint_is_no_part_of_forward() -> None:
    stream = Stream()
    stream.play(" ".join([BATCH] * 2), sync=None)
    stream.play("D0 D1:5 S0:1 S1:100 B0:6 BC:1 B1:1 O0:1 O1:1 D0", sync=None)

    row = stream.rows[-1]
    assert (phases(row)["forward"], phases(row)["other"]) == (7, 101)


def test_where_another_thread_fetches_a_wait_cannot_be_told_from_forward() -> None:
    stream = Stream()
    for _ in range(3):
        stream.mark("Q", 9.0, (8, None))
        stream.play("B0:0.001 BC:3 B1:2 O0:1 O1:2", sync=None)

    assert stream.steps == [1]
    row = stream.rows[0]
    assert (row["unknown_us"], row["data_us"], row["forward_us"]) == (9_000, 0, 1)
    assert row["samples"] == 8
    assert total_us(row) + row["unknown_us"] == row["host_us"]


def test_phases_of_the_script_cut_none_of_the_others() -> None:
    stream = Stream()
    for _ in range(3):
        stream.play("D0 D1:5 P0:1 P1:7 B0:2 BC:3 B1:4 O0:1 O1:2", sync=None)
    stream.play("D0")

    assert phases(stream.rows[0])["forward"] == 10
