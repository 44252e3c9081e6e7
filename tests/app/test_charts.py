from __future__ import annotations

import pytest

from torchtop.app.charts.bar import largest_remainder, meter, stacked
from torchtop.app.charts.glyphs import ASCII, UNICODE
from torchtop.app.charts.plot import Bucket, buckets, columns, nice_ceiling
from torchtop.app.charts.spark import spark
from torchtop.app.charts.table import GAP, Column, header, layout, record
from torchtop.app.text import plain, row_width


def test_a_spark_shows_the_last_values_at_the_right() -> None:
    assert spark([0.0, 0.5, 1.0], 5, UNICODE, high=1.0) == "  ▁▄█"
    assert spark([9.0, 0.0, 0.5, 1.0], 3, UNICODE, high=1.0) == "▁▄█"


def test_a_missing_value_is_a_gap_and_zero_is_not() -> None:
    assert spark([None, 0.0, 1.0], 3, UNICODE, high=1.0) == " ▁█"


def test_a_spark_outside_its_scale_stays_within_the_cell() -> None:
    assert spark([-5.0, 50.0], 2, UNICODE, high=1.0) == "▁█"


def test_a_spark_in_ascii_is_ascii() -> None:
    assert spark([0.0, 0.3, 1.0], 3, ASCII, high=1.0).isascii()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.51, 0.99, 1.0, 1.7, -1.0, None])
@pytest.mark.parametrize("cells", [0, 1, 7, 30])
def test_a_meter_has_exactly_its_cells(share: float | None, cells: int) -> None:
    for glyphs in (UNICODE, ASCII):
        assert row_width(meter(share, cells, glyphs, "bar")) == cells


def test_a_meter_fills_by_half_cells() -> None:
    assert plain(meter(0.5, 4, UNICODE, "bar")) == "━━──"
    assert plain(meter(0.375, 4, UNICODE, "bar")) == "━╸──"


@pytest.mark.parametrize("cells", range(60))
def test_parts_of_a_bar_sum_to_its_cells(cells: int) -> None:
    assert sum(largest_remainder([45.2, 22.1, 41.0, 3.1, 5.2, 2.0], cells)) == cells


def test_nothing_measured_draws_nothing() -> None:
    assert largest_remainder([0.0, 0.0], 10) == [0, 0]


def test_a_stacked_bar_is_as_long_as_its_share_of_the_scale() -> None:
    row = stacked([("D", "d", 30.0), ("F", "f", 30.0)], 20, 120.0, textured=False)
    assert row == (("D    ", "d"), ("F    ", "f"), (" " * 10, ""))


def test_a_stacked_bar_can_be_read_without_colour() -> None:
    row = stacked([("D", "d", 30.0), ("F", "f", 10.0)], 8, 40.0, textured=True)
    assert plain(row) == "DdddddFf"


def test_a_column_that_is_full_never_changes_while_the_chart_scrolls() -> None:
    # given forty steps of which the last sixteen are at hand, four a column
    values = [float(i) for i in range(40)]
    before = buckets(values[22:38], 10, 4, total=38)
    # when two more steps come in
    after = buckets(values[24:40], 10, 4, total=40)
    # then the columns they have in common are the same
    assert after[:3] == before[:3]
    assert before[0] == Bucket(25.5, 27.0)


def test_a_column_begun_before_the_first_value_is_left_out() -> None:
    assert buckets([5.0, 1.0, 1.0], 10, 2, total=6) == [Bucket(1.0, 1.0)]


def test_a_chart_has_the_size_it_was_given() -> None:
    drawn = columns(
        [Bucket(5.0, 9.0), None, Bucket(2.0, 2.0)],
        6,
        3,
        10.0,
        glyphs=UNICODE,
        style="c",
        peak_style="p",
    )
    assert [row_width(row) for row in drawn] == [6, 6, 6]


def test_peaks_stand_behind_the_mean() -> None:
    drawn = columns([Bucket(5.0, 10.0)], 1, 4, 10.0, glyphs=UNICODE, style="c", peak_style="p")
    assert [row[0][1] for row in drawn] == ["p", "p", "c", "c"]


@pytest.mark.parametrize(("value", "top"), [(118.0, 150.0), (0.9, 1.0), (1.0, 1.0), (0.0, 1.0)])
def test_a_scale_ends_at_a_round_number(value: float, top: float) -> None:
    assert nice_ceiling(value) == pytest.approx(top)


COLUMNS = (
    Column("a", "alpha", 5),
    Column("b", "beta", 4, ">", rank=2),
    Column("c", "gamma", 5, rank=1, stretch=1, most=9),
)


def test_the_least_important_column_goes_first() -> None:
    assert [c.key for c, _ in layout(COLUMNS, 40)] == ["a", "b", "c"]
    assert [c.key for c, _ in layout(COLUMNS, 13)] == ["a", "c"]
    assert [c.key for c, _ in layout(COLUMNS, 3)] == ["a"]


def test_spare_cells_go_to_what_stretches_up_to_its_most() -> None:
    assert {c.key: size for c, size in layout(COLUMNS, 20)}["c"] == 7
    assert {c.key: size for c, size in layout(COLUMNS, 90)}["c"] == 9


def test_header_and_records_line_up() -> None:
    placed = layout(COLUMNS, 30)
    values = {"a": [("x", "")], "b": [("12", "")], "c": [("long text", "")]}
    assert plain(header(placed, 30)).index("beta") + 4 == 5 + GAP + 4
    assert plain(record(placed, values, 30))[5 + GAP : 5 + GAP + 4] == "  12"
