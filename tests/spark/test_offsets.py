"""Planning: exact ranges, data loss, and how ranges are split."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.spark.offsets import (
    OffsetRange,
    PlanError,
    PlannedDataLossError,
    check_exact,
    resolve_ranges,
    split_ranges,
)
from pykraft.spark.positions import EARLIEST, LATEST

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def resolve(
    starting: int, ending: int, log: tuple[int, int], fail_on_data_loss: bool = True
) -> list[OffsetRange]:
    """All for partition 0; ``log`` is (start, end)."""
    return resolve_ranges(
        {P0: starting}, {P0: ending}, {P0: log[0]}, {P0: log[1]}, fail_on_data_loss=fail_on_data_loss
    )


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        (EARLIEST, LATEST, (10, 50)),
        (20, LATEST, (20, 50)),
        (EARLIEST, 30, (10, 30)),
        (LATEST, LATEST, None),
        (50, 50, None),
        (10, 10, None),
    ],
)
def test_positions_become_exact_offsets(starting: int, ending: int, expected: tuple[int, int] | None) -> None:
    ranges = resolve(starting, ending, (10, 50))
    assert [(one.start, one.end) for one in ranges] == ([expected] if expected else [])


def test_ranges_come_in_order_of_topic_and_partition() -> None:
    parts = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 2)]
    everywhere = dict.fromkeys(parts, 0), dict.fromkeys(parts, LATEST)
    ranges = resolve_ranges(
        *everywhere, dict.fromkeys(parts, 0), dict.fromkeys(parts, 5), fail_on_data_loss=True
    )
    assert [(one.topic, one.partition) for one in ranges] == [("a", 2), ("a", 10), ("b", 0)]


@pytest.mark.parametrize(("starting", "ending"), [(5, LATEST), (EARLIEST, 51), (60, LATEST)])
def test_offsets_outside_the_log_are_data_loss(starting: int, ending: int) -> None:
    with pytest.raises(PlannedDataLossError, match="t-0 is not in the log, which holds 10 up to 50"):
        resolve(starting, ending, (10, 50))


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [(5, LATEST, [(10, 50)]), (EARLIEST, 51, [(10, 50)]), (60, LATEST, [])],
)
def test_range_is_reduced_to_existing_records_if_loss_is_allowed(
    starting: int, ending: int, expected: list[tuple[int, int]]
) -> None:
    ranges = resolve(starting, ending, (10, 50), fail_on_data_loss=False)
    assert [(one.start, one.end) for one in ranges] == expected


def test_start_after_the_end_is_refused() -> None:
    with pytest.raises(PlanError, match="starting offset 40 of t-0 is after its ending offset 20"):
        resolve(40, 20, (10, 50))


def test_offset_map_must_name_exactly_the_partitions_read() -> None:
    check_exact([P0, P1], [P1, P0], "startingOffsets")
    with pytest.raises(PlanError, match=r"'startingOffsets' must name every partition.*missing: t-1"):
        check_exact([P0], [P0, P1], "startingOffsets")
    with pytest.raises(PlanError, match="not read: t-1"):
        check_exact([P0, P1], [P0], "startingOffsets")


def test_long_list_of_missing_partitions_is_shortened() -> None:
    many = [TopicPartition("t", index) for index in range(20)]
    with pytest.raises(PlanError, match="t-4 and 15 more"):
        check_exact([], many, "endingOffsets")


def test_ranges_are_whole_without_limits() -> None:
    ranges = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 6)]
    assert split_ranges(ranges, None, None) == ranges


def test_no_piece_is_longer_than_the_limit() -> None:
    pieces = split_ranges([OffsetRange("t", 0, 3, 13)], None, 4)
    assert [(piece.start, piece.end) for piece in pieces] == [(3, 6), (6, 9), (9, 13)]


def test_as_many_pieces_as_wanted_are_not_split() -> None:
    """Though their sizes would."""
    ranges = [OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)]
    assert split_ranges(ranges, 2, None) == ranges and split_ranges(ranges, 1, None) == ranges
    assert len(split_ranges(ranges, 3, None)) == 3
    assert len(split_ranges(ranges, 10, 100)) == 10, "those of the largest size are enough"


def test_larger_ranges_are_split_into_more_pieces() -> None:
    pieces = split_ranges([OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)], 10, None)
    assert [piece.partition for piece in pieces].count(0) == 9
    assert [piece.partition for piece in pieces].count(1) == 1


def test_ranges_too_short_to_split_give_fewer_pieces_than_wanted() -> None:
    assert len(split_ranges([OffsetRange("t", 0, 0, 3)], 10, None)) == 3


def test_ranges_of_about_one_share_stay_whole_and_the_others_have_what_is_left() -> None:
    ranges = [OffsetRange("t", 0, 0, 10_000), OffsetRange("t", 1, 0, 100), OffsetRange("t", 2, 0, 100)]
    pieces = split_ranges(ranges, 8, None)
    assert [piece.partition for piece in pieces] == [0] * 6 + [1, 2]
    assert [piece.size for piece in pieces[:6]] == [1666, 1666, 1667, 1667, 1667, 1667]


def test_empty_ranges_have_no_task() -> None:
    assert split_ranges([OffsetRange("t", 0, 7, 7), OffsetRange("t", 1, 0, 1)], 4, 1) == [
        OffsetRange("t", 1, 0, 1)
    ]


sizes = st.lists(st.integers(1, 1000), min_size=1, max_size=6)


@settings(deadline=None, max_examples=200)
@given(sizes, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_pieces_cover_every_offset_once_and_respect_the_limits(
    lengths: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange("t", index, 7, 7 + length) for index, length in enumerate(lengths)]
    pieces = split_ranges(ranges, min_partitions, max_records)
    covered = [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]
    assert all(piece.size >= 1 for piece in pieces)
    assert max_records is None or max(piece.size for piece in pieces) <= max_records
    if min_partitions is None and max_records is None:
        assert len(pieces) == len(lengths)
