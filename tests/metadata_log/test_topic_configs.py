import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.configs import check_topic_config, effective_topic_config, validate_topic_configs


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
        ("cleanup.policy", "delete,delete"),
        ("internal.segment.bytes", "0"),
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


def test_an_empty_cleanup_policy_is_allowed_and_the_internal_size_has_no_minimum() -> None:
    validate_topic_configs({"cleanup.policy": "", "internal.segment.bytes": "1"})
    effective = effective_topic_config({"cleanup.policy": ""}, {})
    assert (effective["cleanup.policy"], effective["internal.segment.bytes"]) == ((), None)


def test_least_compaction_lag_above_the_greatest_is_refused_wherever_they_are_set() -> None:
    check_topic_config({"min.compaction.lag.ms": "5"}, {"max.compaction.lag.ms": "5"})
    for overrides, wide in (
        ({"min.compaction.lag.ms": "6"}, {"max.compaction.lag.ms": "5"}),
        ({"max.compaction.lag.ms": "5"}, {"min.compaction.lag.ms": "6"}),
        ({"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "6"}, {}),
    ):
        with pytest.raises(KafkaError) as error:
            check_topic_config(overrides, wide)
        assert error.value.code is ErrorCode.INVALID_CONFIG
