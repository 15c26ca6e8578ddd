"""The bytes of metadata records are an on-disk format: these fixtures may be added to, never changed."""

import msgpack
import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.codec import RecordFormatError, decode_record, encode_record
from pykraft.metadata_log.records import (
    OWN_OFFSET,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    FeatureRange,
    LogsLost,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    SessionTimeoutRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

ID = Uuid(bytes(range(16)))
HEX_ID = "c410000102030405060708090a0b0c0d0e0f"

GOLDEN: list[tuple[Record, str]] = [
    (
        RegisterBrokerRecord(
            7,
            ID,
            OWN_OFFSET,
            (Endpoint("P", "h", 9092, "PLAINTEXT"),),
            (FeatureRange("f", 1, 30),),
            "r1",
            log_dirs=(ID,),
            logs_lost=LogsLost.TAIL,
        ),
        f"9d000207{HEX_ID}ff9194a150a168cd2384a9504c41494e544558549193a166011ea27231c3c291{HEX_ID}01ff",
    ),
    (UnregisterBrokerRecord(7, 300), "94010007cd012c"),
    (TopicRecord("t", ID), f"940200a174{HEX_ID}"),
    (
        PartitionRecord(0, ID, (1, 2, 3), (1, 2), 1, 4, 5),
        f"9d030000{HEX_ID}930102039201020104059090909 0".replace(" ", ""),
    ),
    (ConfigRecord(2, "t", "retention.ms", "5"), "96040002a174ac726574656e74696f6e2e6d73a135"),
    (ConfigRecord(2, "t", "k", None), "96040002a174a16bc0"),
    (PartitionChangeRecord(1, ID, isr=(2,), leader=-1), f"9b050001{HEX_ID}9102ffc0c0c0c0c0"),
    # In an older version if that holds every field, so that older code can read it.
    (
        PartitionRecord(0, ID, (1, 2, 3), (1, 2), 1, 4, 5, lost_replicas=(3,)),
        f"9e030100{HEX_ID}93010203920102010405909090909103",
    ),
    (
        PartitionChangeRecord(1, ID, isr=(2,), leader=-1, lost_replicas=(1,)),
        f"9c050101{HEX_ID}9102ffc0c0c0c0c09101",
    ),
    (PartitionChangeRecord(1, ID, lost_replicas=()), f"9c050101{HEX_ID}c0c0c0c0c0c0c090"),
    (PartitionChangeRecord(1, ID, directories=(ID,)), f"9d050201{HEX_ID}c0c0c0c0c0c0c0c091{HEX_ID}"),
    (
        PartitionRecord(0, ID, (1, 2), (1, 2), 1, 4, 5, directories=(ID, ID)),
        f"9f030200{HEX_ID}92010292010201040590909090909{2}{HEX_ID}{HEX_ID}",
    ),
    (
        BrokerRegistrationChangeRecord(7, 300, offline_log_dirs=(ID,)),
        f"97110107cd012cc0c091{HEX_ID}",
    ),
    (BrokerRegistrationChangeRecord(7, 300, cordoned_log_dirs=()), "98110207cd012cc0c0c090"),
    (RemoveTopicRecord(ID), f"930900{HEX_ID}"),
    (FeatureLevelRecord("metadata.version", 30), "940c00b06d657461646174612e76657273696f6e1e"),
    (ProducerIdsRecord(7, 300, 2000), "950f0007cd012ccd07d0"),
    (BrokerRegistrationChangeRecord(7, 300, fenced=True), "96110007cd012cc3c0"),
    (NoOpRecord(), "921400"),
    (
        RegisterControllerRecord(100, (FeatureRange("f", 1, 30),), (Endpoint("K", "h", 9094, "PLAINTEXT"),)),
        "951b01649193a166011e9194a14ba168cd2386a9504c41494e54455854",
    ),
    (SessionTimeoutRecord(9000), "93ccc800cd2328"),
]


# Older versions: always read, no longer written.
GOLDEN_OLD: list[tuple[Record, str]] = [
    (
        RegisterBrokerRecord(
            7,
            ID,
            OWN_OFFSET,
            (Endpoint("P", "h", 9092, "PLAINTEXT"),),
            (FeatureRange("f", 1, 30),),
            "r1",
            log_dirs=(ID,),
        ),
        f"9b000007{HEX_ID}ff9194a150a168cd2384a9504c41494e544558549193a166011ea27231c3c291{HEX_ID}",
    ),
    (
        GOLDEN[0][0],
        f"9c000107{HEX_ID}ff9194a150a168cd2384a9504c41494e544558549193a166011ea27231c3c291{HEX_ID}01",
    ),
    (RegisterControllerRecord(100, (FeatureRange("f", 1, 30),)), "941b00649193a166011e"),
]


@pytest.mark.parametrize(("record", "old"), GOLDEN_OLD, ids=lambda value: type(value).__name__)
def test_old_versions_are_still_read(record: Record, old: str) -> None:
    assert decode_record(bytes.fromhex(old)) == record


@pytest.mark.parametrize(("record", "expected"), GOLDEN, ids=lambda value: type(value).__name__)
def test_bytes_never_change(record: Record, expected: str) -> None:
    assert encode_record(record).hex() == expected
    assert decode_record(bytes.fromhex(expected)) == record


def test_every_record_type_has_a_golden_fixture() -> None:
    assert {type(record) for record, _ in GOLDEN} == set(Record.__args__)


@pytest.mark.parametrize("row", [[99, 0], [2, 1, "t", ID], [2, 1, "t", ID, "more"]])
def test_unknown_type_or_version_is_a_log_newer_than_the_code(row: list[object]) -> None:
    with pytest.raises(RecordFormatError, match="newer than the code"):
        decode_record(msgpack.packb(row))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x94\x02\x00",
        msgpack.packb("text"),
        msgpack.packb([2]),
        msgpack.packb([2, 0, "t"]),
        msgpack.packb([2, -1, "t", ID]),
        msgpack.packb([[], 0]),
        msgpack.packb([0, 0, 7, ID, -1, 5, [], None, True, False, []]),
        msgpack.packb([0, 0, 7, ID, -1, [[1]], [], None, True, False, []]),
        msgpack.packb([2, 0, "t", ID]) + b"\x00",
    ],
)
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RecordFormatError):
        decode_record(data)
