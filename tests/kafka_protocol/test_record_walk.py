"""The walk over records without objects: accepts what the decoder reads, and nothing else.

Every body is walked in Python and, where it is installed, by the compiled loop.
"""

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykraft.kafka_protocol import records
from pykraft.kafka_protocol.compiled_walk import IS_COMPILED, CompiledRecordWalk
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.primitives import ProtocolError, write_varint
from pykraft.kafka_protocol.record_codec import Record, RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.record_walk import (
    MAX_REJECTED_RECORDS,
    RecordRules,
    RecordWalk,
    RejectedRecord,
)

ANYTHING = RecordRules(requires_keys=False, least_delta=-(1 << 63), greatest_delta=1 << 63, exempt_delta=-1)


class Shape(NamedTuple):
    """How one record is written: correct unless a field says otherwise."""

    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_delta: int = 0
    attributes: int = 0


def varint(value: int, width: int = 0) -> bytes:
    """Zigzag encoded; with ``width`` in that many bytes, even if fewer suffice."""
    out = bytearray()
    write_varint(out, value)
    while len(out) < width:
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def encode(shape: Shape, offset_delta: int, *, delta_width: int = 0) -> bytes:
    def data(value: bytes | None) -> bytes:
        return varint(-1) if value is None else varint(len(value)) + value

    content = bytes([shape.attributes]) + varint(shape.timestamp_delta) + varint(offset_delta, delta_width)
    content += data(shape.key) + data(shape.value) + varint(len(shape.headers))
    content += b"".join(data(name) + data(value) for name, value in shape.headers)
    return varint(len(content)) + content


def body_of(shapes: list[Shape]) -> bytes:
    return b"".join(encode(shape, index) for index, shape in enumerate(shapes))


def walk(
    body: bytes | bytearray | memoryview, count: int, rules: RecordRules = ANYTHING, work: int = 1 << 30
) -> RecordWalk:
    """The walk in Python; the compiled one has found the same, or refused the body, too."""
    compiled, error = _outcome(CompiledRecordWalk, body, count, rules, work) if IS_COMPILED else (None, None)
    done, expected = _outcome(RecordWalk, body, count, rules, work)
    if IS_COMPILED:
        assert (error is None) == (expected is None), (error, expected)
    if expected is not None:
        raise expected
    assert done is not None
    if compiled is not None:
        assert (compiled.rejected, compiled.greatest_delta) == (done.rejected, done.greatest_delta)
    return done


def _outcome(
    kind: type[RecordWalk], body: bytes | bytearray | memoryview, count: int, rules: RecordRules, work: int
) -> tuple[RecordWalk | None, ProtocolError | None]:
    try:
        walk = kind(body, count, rules)
        while not walk.is_done:
            assert walk.advance(work) > 0
    except ProtocolError as error:
        assert error.code is ErrorCode.INVALID_RECORD
        return None, error
    return walk, None


def decoded(body: bytes, count: int) -> list[Record] | None:
    """The records as the decoder reads them, with timestamps as deltas; None if it refuses them."""
    header = records.BatchHeader(0, len(body) + 49, 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    try:
        found = decode_batch(bytes(records.HEADER_BYTES) + body, header)
    except ProtocolError:
        return None
    if not found or [record.offset for record in found] != list(range(count)):
        return None
    return found


def rejected_by(rules: RecordRules, found: list[Record]) -> list[RejectedRecord]:
    rejected = []
    for index, record in enumerate(found):
        stamp = record.timestamp_ms
        if rules.requires_keys and record.key is None:
            rejected.append(RejectedRecord(index, True, 0))
        elif not rules.least_delta <= stamp <= rules.greatest_delta and stamp != rules.exempt_delta:
            rejected.append(RejectedRecord(index, False, stamp))
    return rejected


def check(body: bytes, count: int, rules: RecordRules = ANYTHING, work: int = 1 << 30) -> bool:
    """Check that the walk and the decoder agree; returns whether both accept."""
    expected = decoded(body, count)
    try:
        done = walk(body, count, rules, work)
    except ProtocolError as error:
        assert error.code is ErrorCode.INVALID_RECORD
        assert expected is None, f"refused, but readable: {error}"
        return False
    assert expected is not None, "accepted, but not readable"
    assert done.rejected == rejected_by(rules, expected)
    assert done.greatest_delta == max(record.timestamp_ms for record in expected)
    return True


deltas = st.one_of(
    st.integers(0, 3), st.integers(-130, 130), st.integers(8000, 8400), st.integers(-(2**62), 2**62)
)
small = st.one_of(st.none(), st.binary(max_size=3), st.sampled_from([bytes(63), bytes(64), bytes(200)]))
shapes = st.builds(
    Shape,
    key=small,
    value=small,
    headers=st.lists(st.tuples(st.binary(max_size=2), small), max_size=2).map(tuple),
    timestamp_delta=deltas,
    attributes=st.integers(0, 255),
)
runs = st.lists(
    st.tuples(shapes, st.sampled_from([1, 1, 2, 3, 5, 40, 70, 130]), st.lists(deltas, max_size=3)),
    min_size=1,
    max_size=4,
).map(
    lambda parts: [
        shape._replace(timestamp_delta=(stamps or [shape.timestamp_delta])[n % max(1, len(stamps))])
        for shape, length, stamps in parts
        for n in range(length)
    ]
)
rules = st.builds(
    RecordRules,
    requires_keys=st.booleans(),
    least_delta=st.sampled_from([-(1 << 63), -100, 0, 2, 100, 8192]),
    greatest_delta=st.sampled_from([1 << 63, 8191, 63, 2]),
    exempt_delta=st.sampled_from([-1, 1, 64, 8200]),
)


@given(runs, rules, st.sampled_from([1, 7, 64, 1 << 30]))
def test_walk_finds_in_valid_records_what_the_decoder_finds(
    batch: list[Shape], rules: RecordRules, work: int
) -> None:
    assert check(body_of(batch), len(batch), rules, work)


@given(runs, st.data())
def test_walk_accepts_a_damaged_body_only_if_the_decoder_does(
    batch: list[Shape], data: st.DataObject
) -> None:
    body = bytearray(body_of(batch))
    for _ in range(data.draw(st.integers(1, 3), "changes")):
        at = data.draw(st.integers(0, len(body) - 1), "place")
        how = data.draw(st.sampled_from(["set", "set", "insert", "delete"]), "change")
        if how == "set":
            body[at] = data.draw(st.one_of(st.sampled_from([0, 1, 2, 127, 128, 255]), st.integers(0, 255)))
        elif how == "insert":
            body[at:at] = data.draw(st.binary(min_size=1, max_size=3))
        elif len(body) > 1:
            del body[at]
    count = len(batch) + data.draw(st.sampled_from([0, 0, 0, -1, 1]), "count")
    check(bytes(body), count, work=data.draw(st.sampled_from([1, 5, 1 << 30])))


@given(st.binary(max_size=300), st.integers(-1, 50))
@example(b"", 0)
@example(b"\x0c\x00\x00\x00\x01\x01\x00", 1)
def test_random_bytes_are_accepted_only_if_the_decoder_reads_them(body: bytes, count: int) -> None:
    check(body, count)


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193, 16_384, 16_500])
@pytest.mark.parametrize("stamps", ["same", "growing"])
def test_long_runs_are_accepted_across_every_width_of_offset_deltas(count: int, stamps: str) -> None:
    batch = [Shape(timestamp_delta=0 if stamps == "same" else index) for index in range(count)]
    body = body_of(batch)
    assert check(body, count)
    assert check(body, count, work=100)


@pytest.mark.parametrize(
    ("victim", "wrong"),
    [
        (victim, victim + by)
        for victim in (0, 1, 2, 30, 63, 64, 65, 100, 8191, 8192, 8193, 8999)
        for by in (-8192, -1, 1, 64, 8192)
        if victim + by >= -1 and len(varint(victim + by)) <= len(varint(victim))
    ],
)
def test_one_wrong_offset_delta_in_a_long_run_is_found(victim: int, wrong: int) -> None:
    count = 9000
    parts = [encode(Shape(), index) for index in range(count)]
    parts[victim] = encode(Shape(), wrong, delta_width=len(varint(victim)))
    with pytest.raises(ProtocolError, match=f"record {victim} has the offset delta {wrong}"):
        walk(b"".join(parts), count)


def test_offset_deltas_that_restart_in_the_middle_of_a_run_are_found() -> None:
    parts = [encode(Shape(), index) for index in range(9000)]
    parts[8193:] = [encode(Shape(), index - 8192, delta_width=3) for index in range(8193, 9000)]
    with pytest.raises(ProtocolError, match="record 8193 has the offset delta 1"):
        walk(b"".join(parts), 9000)


@pytest.mark.parametrize("stamp", [0, 63, 64, 100, 8191, 8192])
@pytest.mark.parametrize("victim", [0, 1, 10, 69])
@pytest.mark.parametrize("early", [True, False])
def test_one_timestamp_out_of_range_in_a_run_is_found(stamp: int, victim: int, early: bool) -> None:
    batch = [Shape(timestamp_delta=stamp)] * 70
    batch[victim] = Shape(timestamp_delta=stamp - 1 if early else stamp + 1)
    assert check(body_of(batch), 70, RecordRules(False, stamp, stamp, -1))


def test_a_run_of_needlessly_wide_offset_deltas_is_accepted() -> None:
    for width in (2, 3, 4, 5):
        body = b"".join(encode(Shape(), index, delta_width=width) for index in range(300))
        assert check(body, 300)


def test_every_byte_of_a_run_other_than_content_is_checked() -> None:
    """A change of any byte of the lengths of the 40th of 60 equal records is noticed."""
    batch = [Shape(b"k", b"v" * 70, ((b"h", b"x"), (b"i", None)), 70)] * 60
    parts = [encode(shape, index) for index, shape in enumerate(batch)]
    start = sum(len(part) for part in parts[:40])
    content = {start + 2}  # attributes
    for at in range(start, start + len(parts[40])):
        body = bytearray(b"".join(parts))
        body[at] ^= 0x05
        accepted = check(bytes(body), 60)
        if accepted:
            content.add(at)
    assert (
        len(content) == 1 + 2 + 1 + 70 + 1 + 1 + 1
    )  # attributes, timestamp, key, value, names, header value


def record_of(*parts: bytes) -> bytes:
    content = b"".join((b"\0", *parts))
    return varint(len(content)) + content


WIDEST_STAMP, TOO_WIDE_STAMP = b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02"
WIDE_ZERO, TOO_WIDE_ZERO = b"\x80\x80\x80\x80\x00", b"\x80\x80\x80\x80\x10"


@pytest.mark.parametrize(
    ("record", "is_accepted"),
    [
        (record_of(WIDEST_STAMP, b"\0\1\1\0"), True),
        (record_of(TOO_WIDE_STAMP, b"\0\1\1\0"), False),
        (record_of(b"\0", WIDE_ZERO, b"\1\1\0"), True),
        (record_of(b"\0", TOO_WIDE_ZERO, b"\1\1\0"), False),
        (record_of(b"\0\0\1\1\2", b"\0\1"), True),
        (record_of(b"\0\0\1\1\2", b"\1\1"), False),  # a null name of a header
        (record_of(b"\0\0\1\1\2", b"\0\3"), False),
        (record_of(b"\0\0\3\1\0"), False),
        (record_of(b"\0\0\1\3\0"), False),
        (record_of(b"\0\0\1\1\1"), False),
        (b"\0", False),
    ],
)
def test_numbers_at_their_limits(record: bytes, is_accepted: bool) -> None:
    body = record + bytes(8)  # so many bytes that more than one would fit
    assert not check(body, 1)
    assert check(record + encode(Shape(), 1), 2) is is_accepted


def test_count_over_fewer_records_is_refused_before_anything_is_read() -> None:
    body = body_of([Shape()])
    with pytest.raises(ProtocolError, match=r"1000000 records in \d+ bytes"):
        RecordWalk(body, 1_000_000, ANYTHING)


def test_records_after_the_last_counted_one_are_refused() -> None:
    with pytest.raises(ProtocolError, match="bytes follow"):
        walk(body_of([Shape(), Shape()]), 1)


def test_walk_stops_when_its_work_is_done_and_continues_where_it_was() -> None:
    batch = [Shape(value=bytes(index % 50)) for index in range(1000)]
    done = RecordWalk(body_of(batch), 1000, ANYTHING)
    steps = 0
    while not done.is_done:
        assert done.advance(100) < 130
        steps += 1
    assert steps >= 10


@pytest.mark.skipif(not IS_COMPILED, reason="NOT TESTED: the compiled walk is not installed (no C compiler)")
def test_compiled_walk_stops_when_its_work_is_done_and_continues_where_it_was() -> None:
    shapes = [Shape(b"k", bytes(index % 50), ((b"h", None),) * (index % 40)) for index in range(3000)]
    body = body_of(shapes)
    done = CompiledRecordWalk(body, len(shapes), replace(ANYTHING, requires_keys=True, greatest_delta=0))
    steps = 0
    while not done.is_done:
        assert done.advance(10) <= 10
        steps += 1
    assert steps >= 200
    assert done.greatest_delta == 0 and not done.rejected


@pytest.mark.skipif(not IS_COMPILED, reason="NOT TESTED: the compiled walk is not installed (no C compiler)")
@pytest.mark.parametrize("beyond", [1 << 63, 1 << 64, -(1 << 63) - 1, -(1 << 64)])
@pytest.mark.parametrize("delta", [(1 << 63) - 1, -(1 << 63), 0])
def test_rules_beyond_64_bits_mean_the_same_to_the_compiled_walk(beyond: int, delta: int) -> None:
    """The base timestamp of a client may be any, and rules are relative to it."""
    body = body_of([Shape(timestamp_delta=delta)])
    for rules in (
        RecordRules(False, beyond, 1 << 65, 5),
        RecordRules(False, -(1 << 65), beyond, 5),
        RecordRules(False, 1, 1, beyond),
    ):
        assert check(body, 1, rules)


def test_records_of_one_length_cost_little_work_and_others_one_each() -> None:
    same = RecordWalk(body_of([Shape()] * 5000), 5000, ANYTHING)
    assert 300 < same.advance(1 << 30) < 500
    long = RecordWalk(body_of([Shape(value=bytes(60_000))] * 100), 100, ANYTHING)
    assert 300 < long.advance(1 << 30) < 500
    mixed = RecordWalk(body_of([Shape(value=bytes(n % 60)) for n in range(5000)]), 5000, ANYTHING)
    assert 5000 <= mixed.advance(1 << 30) < 5500


def test_walk_ends_early_when_too_many_records_break_a_rule() -> None:
    count = 100 * MAX_REJECTED_RECORDS
    done = RecordWalk(body_of([Shape()] * count), count, replace(ANYTHING, requires_keys=True))
    work = 0
    while not done.is_done:
        work += done.advance(500)
    assert len(done.rejected) >= MAX_REJECTED_RECORDS
    assert work < 2 * MAX_REJECTED_RECORDS
    if IS_COMPILED:
        compiled = CompiledRecordWalk(
            body_of([Shape()] * count), count, replace(ANYTHING, requires_keys=True)
        )
        compiled.advance(1 << 30)
        assert compiled.is_done and len(compiled.rejected) == MAX_REJECTED_RECORDS


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda body: memoryview(bytearray(body))])
def test_walk_reads_any_buffer(kind: type[bytes]) -> None:
    batch = [Shape(b"k", timestamp_delta=index) for index in range(200)]
    assert walk(kind(body_of(batch)), 200).greatest_delta == 199


def test_name_of_a_header_may_be_any_bytes_for_walk_and_decoder() -> None:
    shape = Shape(headers=((b"\xff", b"v"),))
    assert check(body_of([shape]), 1)
    found = decoded(body_of([shape]), 1)
    assert found is not None
    assert found[0].headers == (("�", b"v"),)


def test_body_of_the_encoder_is_accepted() -> None:
    batch = encode_batch([RecordInput(b"k", b"v", (("é", None),), 5), RecordInput(None, None)])
    assert check(batch[records.HEADER_BYTES :], 2)


def test_headers_count_as_work_and_a_walk_can_stop_and_continue_among_them() -> None:
    many = Shape(headers=((b"", None),) * 10_000)
    body = body_of([Shape(), many, many, Shape()])
    assert check(body, 4)
    assert check(body, 4, work=37)
    done = RecordWalk(body, 4, ANYTHING)
    steps = 0
    while not done.is_done:
        assert done.advance(100) <= 100
        steps += 1
    assert steps >= 200


@pytest.mark.parametrize("at", [-1, -2, -2000])
def test_damage_among_many_headers_is_found(at: int) -> None:
    body = bytearray(body_of([Shape(headers=((b"", None),) * 5000)]))
    body[at] ^= 0x02
    assert not check(bytes(body), 1)
