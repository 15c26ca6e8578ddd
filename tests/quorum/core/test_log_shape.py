"""The outline of the log compared with a list of records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykraft.quorum.core.log_shape import LogShape, SnapshotId

STEPS = st.lists(st.tuples(st.sampled_from(["append", "next epoch", "truncate", "flush"]), st.integers(0, 5)))


@given(STEPS)
def test_outline_agrees_with_a_list_of_epochs(steps: list[tuple[int, int]]) -> None:
    epochs: list[int] = []
    shape, epoch, flushed = LogShape(), 1, 0
    for action, number in steps:
        match action:
            case "append":
                epochs += [epoch] * (number + 1)
                shape.append(len(epochs), epoch)
            case "next epoch":
                epoch += number
            case "truncate" if number < len(epochs):
                del epochs[number:]
                shape.truncate(number)
                flushed = min(flushed, number)
            case "flush":
                shape.flushed(len(epochs), shape.generation)
                flushed = max(flushed, len(epochs))
        assert shape.end_offset == len(epochs)
        assert shape.flushed_offset == flushed
        assert shape.last_epoch == (epochs[-1] if epochs else 0)
        begun = [n for n, e in enumerate(epochs) if n == 0 or epochs[n - 1] != e]
        assert shape.epoch_starts == tuple((epochs[n], n) for n in begun), "each epoch once"
        for asked in range(epoch + 2):
            held = [e for e in epochs if e <= asked]
            expected = (max(held), len(held)) if held else (0, 0)
            assert shape.end_offset_for_epoch(asked) == expected


def test_flush_that_overlapped_a_truncation_is_void() -> None:
    shape = LogShape()
    shape.append(10, 1)
    generation = shape.generation
    shape.truncate(4)
    shape.append(10, 2)
    assert not shape.flushed(10, generation)
    assert shape.flushed_offset == 0
    assert shape.flushed(10, shape.generation)


@pytest.mark.parametrize(
    ("offset", "epoch", "left"),
    [(2, 1, ((1, 2), (3, 5))), (5, 1, ((3, 5),)), (7, 3, ((3, 7),)), (9, 3, ((3, 9),))],
)
def test_epochs_begin_where_the_log_begins(
    offset: int, epoch: int, left: tuple[tuple[int, int], ...]
) -> None:
    shape = LogShape(9, [(1, 0), (3, 5)])
    shape.advance_start(SnapshotId(offset, epoch))
    assert (shape.start_offset, shape.epoch_starts) == (offset, left)
