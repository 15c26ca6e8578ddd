"""The bytes of ``__transaction_state`` records are Kafka's.

The golden bytes were printed by a program that calls ``TransactionLog.keyToBytes`` and ``valueToBytes`` of
Kafka 4.3.0 with a ``TxnTransitMetadata`` of these fields, and each ``TransactionVersion``.
"""

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.transaction_coordinator.log.codec import decode_record, encode_record
from pykraft.transaction_coordinator.log.records import TransactionRecord, record_of
from pykraft.transaction_coordinator.transaction import (
    NO_PARTITIONS,
    Partitions,
    Transaction,
    TransactionState,
    TransactionVersion,
)

TV_0, TV_1, TV_2 = TransactionVersion
S = TransactionState
T7: Partitions = frozenset({("t", 7)})
NOW_MS = 1_700_000_000_000
KEY = "000000056d792d6964"


def transaction(epoch: int, state: S, partitions: Partitions, start: int, at: int) -> Transaction:
    return Transaction(
        "my-id",
        1_000,
        epoch,
        60_000,
        state,
        partitions,
        NOW_MS + at,
        NOW_MS + start if start else -1,
        previous_producer_id=1_000,
    )


EMPTY = transaction(0, S.EMPTY, NO_PARTITIONS, 0, 0)
ONGOING = transaction(3, S.ONGOING, T7, 1, 2)
ABORTING = transaction(4, S.PREPARE_ABORT, T7, 1, 3)
ABORTED = transaction(4, S.COMPLETE_ABORT, NO_PARTITIONS, 1, 4)
COMMITTING = replace(
    transaction(32767, S.PREPARE_COMMIT, T7, 1, 3),
    next_producer_id=2_000,
    client_version=TV_2,
    last_producer_epoch=32766,
)
COMMITTED = replace(
    transaction(0, S.COMPLETE_COMMIT, NO_PARTITIONS, 1, 4),
    producer_id=2_000,
    client_version=TV_2,
    last_producer_epoch=32766,
)

GOLDEN = [
    (EMPTY, TV_0, "000000000000000003e800000000ea6000ffffffff0000018bcfe56800ffffffffffffffff"),
    (
        EMPTY,
        TV_1,
        "000100000000000003e800000000ea6000000000018bcfe56800ffffffffffffffff01000800000000000003e8",
    ),
    (
        ONGOING,
        TV_0,
        "000000000000000003e800030000ea60010000000100017400000001000000070000018bcfe568020000018bcfe56801",
    ),
    (
        ONGOING,
        TV_2,
        "000100000000000003e800030000ea6001"
        "0202740200000007000000018bcfe568020000018bcfe5680101000800000000000003e8",
    ),
    (
        COMMITTING,
        TV_2,
        "000100000000000003e87fff0000ea60020202740200000007000000018bcfe568030000018bcfe56801"
        "03000800000000000003e8010800000000000007d002020002",
    ),
    (
        ABORTING,
        TV_0,
        "000000000000000003e800040000ea60030000000100017400000001000000070000018bcfe568030000018bcfe56801",
    ),
    (
        ABORTING,
        TV_1,
        "000100000000000003e800040000ea6003"
        "0202740200000007000000018bcfe568030000018bcfe5680101000800000000000003e8",
    ),
    (
        COMMITTED,
        TV_2,
        "000100000000000007d000000000ea6004010000018bcfe568040000018bcfe5680102000800000000000003e802020002",
    ),
    (ABORTED, TV_0, "000000000000000003e800040000ea6005000000000000018bcfe568040000018bcfe56801"),
    (
        ABORTED,
        TV_2,
        "000100000000000003e800040000ea6005010000018bcfe568040000018bcfe5680101000800000000000003e8",
    ),
]


def as_read_back(value: Transaction, version: TransactionVersion) -> Transaction:
    """Without what the record leaves out."""
    value = replace(value, last_producer_epoch=-1)
    is_of_tv_2 = value.client_version is not TV_0 or value.next_producer_id != -1
    return replace(value, previous_producer_id=-1) if version is TV_0 and not is_of_tv_2 else value


@pytest.mark.parametrize(("value", "version", "expected"), GOLDEN)
def test_record_has_kafkas_bytes_and_reads_back(
    value: Transaction, version: TransactionVersion, expected: str
) -> None:
    key, encoded = encode_record(record_of(value), version)
    assert encoded is not None
    assert (key.hex(), encoded.hex()) == (KEY, expected)
    assert decode_record(key, encoded) == record_of(as_read_back(value, version))


def test_key_is_in_utf_8() -> None:
    assert encode_record(TransactionRecord("zahlung-ü", None), TV_2)[0].hex() == (
        "0000000a7a61686c756e672dc3bc"
    )


def test_partitions_in_kafkas_order_are_the_same() -> None:
    kafkas = bytes.fromhex(
        "000100000000000003e800030000ea600103027403000000010000000000135f5f636f6e73756d65725f6f6666736574730200"
        "000031000000018bcfe568020000018bcfe5680102000800000000000003e802020002"
    )
    record = decode_record(bytes.fromhex(KEY), kafkas)
    expected = replace(
        ONGOING,
        partitions=frozenset({("t", 0), ("t", 1), ("__consumer_offsets", 49)}),
        client_version=TV_2,
    )
    assert record == record_of(expected)


def test_tombstone_has_no_value_and_reads_back() -> None:
    tombstone = TransactionRecord("my-id", None)
    assert encode_record(tombstone, TV_2) == (bytes.fromhex(KEY), None)
    assert decode_record(bytes.fromhex(KEY), None) == tombstone


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [("0001" + KEY[4:], GOLDEN[0][2], "key"), (KEY, "0002" + "00" * 40, "value"), (KEY, "ffff", "value")],
)
def test_record_of_an_unknown_version_is_skipped_with_a_warning(
    key: str, value: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert decode_record(bytes.fromhex(key), bytes.fromhex(value)) is None
    assert f"unknown {kind} version" in caplog.text


@pytest.mark.parametrize(
    ("what", "damaged"),
    [
        ("a state that is never logged", GOLDEN[8][2].replace("ea6005", "ea6006")),
        ("a state that does not exist", GOLDEN[8][2].replace("ea6005", "ea6009")),
        ("partitions are missing", GOLDEN[0][2].replace("ea6000", "ea6002")),
        ("cut off", GOLDEN[3][2][:40]),
    ],
)
def test_damaged_record_is_refused(what: str, damaged: str) -> None:
    with pytest.raises(ProtocolError):
        decode_record(bytes.fromhex(KEY), bytes.fromhex(damaged))


def test_newer_rules_of_a_client_count_as_the_newest_known() -> None:
    newer = bytes.fromhex(GOLDEN[7][2].replace("02020002", "02020009"))
    record = decode_record(bytes.fromhex(KEY), newer)
    assert record is not None and record.value is not None and record.value.client_version is TV_2


def test_what_version_0_cannot_say_is_written_in_version_1() -> None:
    """The feature was taken back while the transaction was open."""
    assert encode_record(record_of(COMMITTING), TV_0) == encode_record(record_of(COMMITTING), TV_1)


LONGS = st.integers(-(2**63), 2**63 - 1)
SHORTS = st.integers(-1, 2**15 - 1)
LOGGED = [state for state in S if state <= S.COMPLETE_ABORT]


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(LOGGED))
    partitions = st.frozensets(st.tuples(st.text(max_size=5), st.integers(0, 2**31 - 1)), max_size=9)
    return Transaction(
        draw(st.text(min_size=1, max_size=20)),
        draw(LONGS),
        draw(SHORTS),
        draw(st.integers(1, 2**31 - 1)),
        state,
        NO_PARTITIONS if state is S.EMPTY else draw(partitions),
        draw(LONGS),
        draw(LONGS),
        draw(LONGS),
        draw(LONGS),
        draw(st.sampled_from(TransactionVersion)),
        draw(SHORTS),
    )


@given(transactions(), st.sampled_from(TransactionVersion))
def test_any_record_reads_back(value: Transaction, version: TransactionVersion) -> None:
    assert decode_record(*encode_record(record_of(value), version)) == record_of(as_read_back(value, version))
