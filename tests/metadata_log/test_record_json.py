"""Records and images as JSON: Kafka's names, and nothing for what a record does not say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.record_json import record_to_json, value_to_json
from pykraft.metadata_log.records import ConfigRecord, PartitionChangeRecord, Record, TopicRecord

TOPIC_ID = Uuid(bytes(range(16)))


@pytest.mark.parametrize(
    ("record", "kind", "data"),
    [
        (TopicRecord("t", TOPIC_ID), "TOPIC_RECORD", {"name": "t", "topicId": uuid_to_str(TOPIC_ID)}),
        (
            PartitionChangeRecord(3, TOPIC_ID, isr=(2, 1), leader=2, removing_replicas=()),
            "PARTITION_CHANGE_RECORD",
            {
                "partitionId": 3,
                "topicId": uuid_to_str(TOPIC_ID),
                "isr": [2, 1],
                "leader": 2,
                "removingReplicas": [],
            },
        ),
        (
            ConfigRecord(2, "t", "retention.ms", None),
            "CONFIG_RECORD",
            {"resourceType": 2, "resourceName": "t", "name": "retention.ms"},
        ),
    ],
)
def test_record_shows_what_it_says_and_no_more(record: Record, kind: str, data: dict[str, Any]) -> None:
    shown = record_to_json(encode_record(record))
    assert (shown["type"], shown["data"]) == (kind, data)
    assert type(shown["version"]) is int and list(shown) == ["type", "version", "data"]


@dataclass(frozen=True)
class Thing:
    some_long_name: object = None
    other: object = None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Thing(0, False), {"someLongName": 0, "other": False}),
        (Thing(None, ""), {"other": ""}),
        (Thing(Thing(1), (Thing(),)), {"someLongName": {"someLongName": 1}, "other": [{}]}),
        (bytes(16), uuid_to_str(Uuid(bytes(16)))),
        (b"\x01\xff", "01ff"),
        (bytes(15), "00" * 15),
        (bytes(17), "00" * 17),
        ({3: Thing(3), 1: None}, {"1": None, "3": {"someLongName": 3}}),
        (frozenset({3, 1, 2}), [1, 2, 3]),
        (None, None),
        ("text", "text"),
    ],
)
def test_value_in_the_types_of_json(value: object, shown: object) -> None:
    assert value_to_json(value) == shown
    if isinstance(value, Mapping):
        assert isinstance(shown, dict) and list(value_to_json(value)) == list(shown), (
            "in the order of the keys"
        )
