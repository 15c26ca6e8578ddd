"""Producer state compared with a model that remembers everything."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.broker.logs.producers.rebuild import rebuild
from pykraft.broker.logs.producers.state import ProducerState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, read_header

LAST = 2**31 - 1


def header(producer_id: int, epoch: int, sequence: int, offset: int, count: int = 1) -> BatchHeader:
    data = encode_batch(
        [RecordInput(None, b"", (), 1)] * count,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return read_header(data)


def contents(state: ProducerState) -> dict[int, tuple[int, object]]:
    found: dict[int, tuple[int, object]] = {}
    for producer_id in range(4):
        entry = state.entry(producer_id)
        if entry is not None:
            found[producer_id] = (entry.epoch, entry.batches)
    return found


requests = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 8), st.integers(1, 3)), max_size=60
)


@settings(max_examples=200, deadline=None)
@given(requests, st.integers(0, 80))
def test_state_is_a_fold_over_what_was_accepted(asked: list[tuple[int, int, int, int]], cut: int) -> None:
    state = ProducerState()
    log: list[BatchHeader] = []
    accepted: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for producer_id, epoch, sequence, count in asked:
        offset = log[-1].next_offset if log else 0
        wanted = header(producer_id, epoch, sequence, offset, count)
        try:
            original = state.check(wanted)
        except KafkaError as error:
            assert error.code in (
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                ErrorCode.INVALID_PRODUCER_EPOCH,
            )
            continue
        written = accepted.setdefault((producer_id, epoch), [])
        if original is not None:
            assert (sequence, count) in written
            assert log and original.base_offset < log[-1].next_offset
            continue
        assert sequence == sum(n for _, n in written)  # exactly once, in order, no gap
        written.append((sequence, count))
        log.append(wanted)
        state.replay(wanted)
    assert contents(rebuild(((one, None) for one in log), log_start_offset=0)) == contents(state)
    kept = [h for h in log if h.next_offset <= cut]
    if state.truncate_to(cut):
        expected = contents(rebuild(((one, None) for one in kept), log_start_offset=0))
        for producer_id, (epoch, batches) in contents(state).items():
            assert expected[producer_id][0] == epoch
            assert tuple(expected[producer_id][1])[-len(batches) :] == batches  # type: ignore[arg-type]


def test_sequence_wraps_around() -> None:
    state = ProducerState(complete=False)
    state.replay(header(1, 0, LAST - 1, 0, 2))
    assert state.check(header(1, 0, 0, 2)) is None
    state.replay(header(1, 0, LAST, 2, 3))
    assert state.check(header(1, 0, 2, 5)) is None


def test_unknown_producer_starts_at_zero_unless_history_was_removed() -> None:
    state = ProducerState()
    try:
        state.check(header(1, 0, 5, 0))
    except KafkaError as error:
        assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    else:
        raise AssertionError("accepted")
    state.replay(header(2, 0, 0, 0))
    state.expire(1000, 10)
    state.expire(1010, 10)
    assert len(state) == 1 and state.complete
    state.expire(1011, 10)
    assert len(state) == 0 and not state.complete
    assert state.check(header(1, 0, 5, 0)) is None


def refusal(state: ProducerState, wanted: BatchHeader) -> ErrorCode | None:
    try:
        assert state.check(wanted) is None
    except KafkaError as error:
        return error.code
    return None


def test_replaced_producer_is_refused_whatever_its_sequence() -> None:
    state = ProducerState()
    state.replay(header(1, 1, 0, 0))
    for sequence in (0, 1, 5):
        assert refusal(state, header(1, 0, sequence, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_longer_batch_that_begins_like_an_earlier_one_is_no_duplicate() -> None:
    state = ProducerState()
    state.replay(header(1, 0, 0, 0, 2))
    assert refusal(state, header(1, 0, 0, 2, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
