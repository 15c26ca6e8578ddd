from hypothesis import given
from hypothesis import strategies as st

from pykraft.metadata_log.chunked import CHUNK, PLAIN_MAX, Chunked, sequence_of, updated

SIZES = st.sampled_from((0, 1, CHUNK, PLAIN_MAX - 1, PLAIN_MAX, PLAIN_MAX + 1, 3 * CHUNK, 3 * CHUNK + 7))


@given(SIZES, SIZES, st.sets(st.integers(0, 4 * CHUNK), max_size=6))
def test_any_update_equals_that_of_a_list(length: int, more: int, indexes: set[int]) -> None:
    plain = list(range(length))
    before = sequence_of(plain)
    changed = {index: -index for index in indexes if index < length}
    after = updated(before, changed, range(more))
    expected = [changed.get(index, index) for index in range(length)] + list(range(more))
    assert list(before) == plain
    assert list(after) == expected and len(after) == len(expected)
    assert after == sequence_of(expected) and hash(after) == hash(sequence_of(expected))
    assert isinstance(after, Chunked) is (len(expected) > PLAIN_MAX)
    assert [after[index] for index in range(len(expected))] == expected
    assert list(after[3:900:7]) == expected[3:900:7]
    if expected:
        assert after[-1] == expected[-1]


def test_one_changed_item_shares_all_other_chunks() -> None:
    before = sequence_of(range(10 * CHUNK))
    after = updated(before, {CHUNK: -1}, ())
    assert isinstance(before, Chunked) and isinstance(after, Chunked)
    shared = [old is new for old, new in zip(before._chunks, after._chunks, strict=True)]
    assert shared == [True, False] + [True] * 8
    assert before != after
