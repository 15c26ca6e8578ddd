from __future__ import annotations

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.configs import effective_topic_config, validate_topic_configs


def test_overrides_precede_broker_wide_values_and_those_precede_defaults() -> None:
    effective = effective_topic_config({"retention.ms": "1"}, {"retention.ms": "2", "segment.ms": "3"})
    assert (effective["retention.ms"], effective["segment.ms"]) == (1, 3)
    assert effective["cleanup.policy"] == ("delete",)
    assert effective["min.cleanable.dirty.ratio"] == 0.5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "1048575"),
        ("segment.bytes", "99999999999"),
        ("cleanup.policy", "delete,burn"),
        ("compression.type", "rar"),
        ("compression.gzip.level", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("preallocate", "maybe"),
        ("leader.replication.throttled.replicas", "0-1"),
        ("retention.bytes", "-2"),
        ("no.such.key", "1"),
    ],
)
def test_invalid_values_are_refused(name: str, value: str) -> None:
    with pytest.raises(KafkaError) as error:
        validate_topic_configs({name: value})
    assert error.value.code is ErrorCode.INVALID_CONFIG
    assert name in error.value.message
