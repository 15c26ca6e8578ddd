"""IncrementalAlterConfigs and AlterConfigs: topics, brokers, groups; a refused request changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from pykraft.configuration.server_keys import DYNAMIC_KEYS
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import configs as legacy
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.metadata_log.broker_configs import broker_wide_topic_configs
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.configs_control import MAX_VALUE_CHARS
from pykraft.metadata_log.records import FeatureLevelRecord
from tests.metadata_log.harness import ControllerHarness
from tests.narrowing import present

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32


def alter(
    cluster: ControllerHarness,
    *entries: tuple[str, int, str | None],
    resource: tuple[int, str] = (2, "t"),
    validate_only: bool = False,
) -> Any:
    configs = [AlterableConfig(name=name, config_operation=op, value=value) for name, op, value in entries]
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=configs)
        ],
        validate_only=validate_only,
    )
    response = cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    return response.responses[0]


def test_keys_are_set_deleted_appended_to_and_subtracted_from(cluster: ControllerHarness) -> None:
    cluster.create_topic("t")
    assert alter(cluster, ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")).error_code == 0
    assert dict(cluster.image.topic_config("t")) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    alter(cluster, ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete"))
    assert dict(cluster.image.topic_config("t")) == {"cleanup.policy": "compact"}


def test_setting_the_present_value_writes_nothing(cluster: ControllerHarness) -> None:
    cluster.create_topic("t")
    alter(cluster, ("retention.ms", SET, "5"))
    before = cluster.image
    assert alter(cluster, ("retention.ms", SET, "5"), ("segment.ms", DELETE, None)).error_code == 0
    assert cluster.image is before


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([("retension.ms", SET, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 7, "5")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "5"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([("segment.ms", SET, "5"), ("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", APPEND, "shred")], ErrorCode.INVALID_CONFIG),
        (
            [("min.compaction.lag.ms", SET, "6"), ("max.compaction.lag.ms", SET, "5")],
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
def test_refused_alteration_changes_nothing(
    cluster: ControllerHarness, entries: list[tuple[str, int, str | None]], expected: ErrorCode
) -> None:
    cluster.create_topic("t")
    before = cluster.image
    assert alter(cluster, *entries).error_code == expected
    assert cluster.image is before


def test_validating_an_alteration_changes_nothing(cluster: ControllerHarness) -> None:
    cluster.create_topic("t")
    before = cluster.image
    assert alter(cluster, ("retention.ms", SET, "5"), validate_only=True).error_code == 0
    assert cluster.image is before


def replace_all(
    cluster: ControllerHarness,
    resource: tuple[int, str],
    configs: dict[str, str | None],
    validate_only: bool = False,
) -> Any:
    request = legacy.AlterConfigsRequest(
        resources=[
            legacy.LegacyAlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    legacy.LegacyAlterableConfig(name=name, value=value) for name, value in configs.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    return cluster.run(cluster.core.handle_forwarded(cluster.context, request)).responses[0]


def test_the_older_api_replaces_all_that_was_set(cluster: ControllerHarness) -> None:
    cluster.create_topic("t")
    alter(cluster, ("retention.ms", SET, "5"), ("segment.ms", SET, "7"))
    assert (
        replace_all(cluster, (TOPIC, "t"), {"segment.ms": "8", "cleanup.policy": "compact"}).error_code == 0
    )
    assert dict(cluster.image.topic_config("t")) == {"segment.ms": "8", "cleanup.policy": "compact"}
    before = cluster.image
    assert replace_all(cluster, (TOPIC, "t"), {}, validate_only=True).error_code == 0
    assert replace_all(cluster, (TOPIC, "t"), {"segment.ms": "x"}).error_code == ErrorCode.INVALID_CONFIG
    assert replace_all(cluster, (TOPIC, "t"), {"segment.ms": None}).error_code == ErrorCode.INVALID_REQUEST
    assert cluster.image is before
    assert replace_all(cluster, (TOPIC, "t"), {}).error_code == 0
    assert dict(cluster.image.topic_config("t")) == {}


def test_deleted_topic_loses_its_configs_and_brokers_and_groups_keep_theirs(
    cluster: ControllerHarness,
) -> None:
    from pykraft.kafka_protocol.messages.topics import DeleteTopicsRequest

    cluster.create_topic("t")
    alter(cluster, ("retention.ms", SET, "5"))
    alter(cluster, ("log.retention.ms", SET, "6"), resource=(BROKER, ""))
    alter(cluster, ("consumer.session.timeout.ms", SET, "50000"), resource=(GROUP, "t"))
    cluster.run(cluster.core.handle_forwarded(cluster.context, DeleteTopicsRequest(topic_names=["t"])))
    assert {key: dict(value) for key, value in cluster.image.configs.items()} == {
        (BROKER, ""): {"log.retention.ms": "6"},
        (GROUP, "t"): {"consumer.session.timeout.ms": "50000"},
    }
    cluster.create_topic("t")
    assert dict(cluster.image.topic_config("t")) == {}


def test_value_of_one_broker_precedes_that_of_all_and_that_precedes_the_file(
    cluster: ControllerHarness,
) -> None:
    alter(
        cluster, ("log.retention.ms", SET, "6"), ("log.segment.bytes", SET, "2000000"), resource=(BROKER, "")
    )
    alter(cluster, ("log.retention.ms", SET, "7"), resource=(BROKER, "1"))
    file = {"retention.ms": "5", "segment.bytes": "3000000", "max.message.bytes": "9"}
    of_one = broker_wide_topic_configs(cluster.image, file, 1)
    assert of_one == {"retention.ms": "7", "segment.bytes": "2000000", "max.message.bytes": "9"}
    assert broker_wide_topic_configs(cluster.image, file, 2)["retention.ms"] == "6"
    assert broker_wide_topic_configs(cluster.image, file)["retention.ms"] == "6"
    alter(cluster, ("log.retention.ms", DELETE, None), resource=(BROKER, "1"))
    assert broker_wide_topic_configs(cluster.image, file, 1)["retention.ms"] == "6"


def test_list_of_a_broker_is_appended_to_what_it_has_from_all_brokers(
    make_controller: Callable[..., ControllerHarness],
) -> None:
    cluster = make_controller(0, ControllerConfig(topic_defaults={"cleanup.policy": "compact"}))
    cluster.start_brokers(1)
    alter(cluster, ("log.cleanup.policy", APPEND, "delete"), resource=(BROKER, ""))
    alter(cluster, ("log.cleanup.policy", SUBTRACT, "compact"), resource=(BROKER, "1"))
    configs = cluster.image.configs
    assert configs[BROKER, ""]["log.cleanup.policy"] == "compact,delete"
    assert configs[BROKER, "1"]["log.cleanup.policy"] == "delete"


@pytest.mark.parametrize(
    ("resource", "entry", "expected", "said"),
    [
        ((TOPIC, "no"), ("retention.ms", SET, "5"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic no"),
        ((TOPIC, ""), ("retention.ms", SET, "5"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic"),
        ((BROKER, "1"), ("retention.ms", SET, "5"), ErrorCode.INVALID_CONFIG, "log.retention.ms"),
        ((BROKER, "1"), ("num.partitions", SET, "5"), ErrorCode.INVALID_REQUEST, "restart"),
        ((BROKER, ""), ("log.dirs", SET, "/x"), ErrorCode.INVALID_REQUEST, "restart"),
        ((BROKER, ""), ("log.dirs", DELETE, None), ErrorCode.INVALID_REQUEST, "restart"),
        ((BROKER, ""), ("ssl.keystore.location", SET, "/x"), ErrorCode.INVALID_REQUEST, "restart"),
        ((BROKER, "7"), ("log.retention.ms", SET, "5"), ErrorCode.BROKER_ID_NOT_REGISTERED, "7"),
        ((BROKER, "one"), ("log.retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST, "not a broker id"),
        ((BROKER, "01"), ("log.retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST, "not a broker id"),
        ((BROKER, "-1"), ("log.retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST, "not a broker id"),
        ((BROKER, "\uff11"), ("log.retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST, "not a broker id"),
        ((BROKER, "9" * 5000), ("log.retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST, "not a broker id"),
        ((BROKER, ""), ("log.retention.ms", SET, "-2"), ErrorCode.INVALID_REQUEST, "at least -1"),
        ((BROKER, ""), ("log.retention.ms", SET, "1_000"), ErrorCode.INVALID_REQUEST, "not a number"),
        ((BROKER, ""), ("log.retention.ms", SET, "9" * 5000), ErrorCode.INVALID_REQUEST, "not a number"),
        ((BROKER, ""), ("log.cleanup.policy", SET, "delete," * 9999), ErrorCode.INVALID_CONFIG, "characters"),
        ((GROUP, "g"), ("consumer.session.timeout", SET, "5"), ErrorCode.INVALID_CONFIG, "did you mean"),
        (
            (GROUP, "g"),
            ("consumer.session.timeout.ms", SET, "5000"),
            ErrorCode.INVALID_CONFIG,
            "must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            (GROUP, "g"),
            ("consumer.assignment.interval.ms", SET, "15001"),
            ErrorCode.INVALID_CONFIG,
            "must be less than or equal to group.consumer.max.assignment.interval.ms",
        ),
        ((GROUP, "g"), ("consumer.heartbeat.interval.ms", SET, "0"), ErrorCode.INVALID_CONFIG, "at least 1"),
        ((GROUP, "g"), ("share.isolation.level", SET, "none"), ErrorCode.INVALID_CONFIG, "read_committed"),
        ((GROUP, ""), ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST, "characters"),
        (
            (GROUP, "g" * 250),
            ("consumer.session.timeout.ms", SET, "50000"),
            ErrorCode.INVALID_REQUEST,
            "char",
        ),
        ((8, "1"), ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST, "type 8"),
        ((BROKER, "1"), ("listeners", SET, "A://:1"), ErrorCode.INVALID_REQUEST, "restart"),
        ((BROKER, ""), ("num.io.threads", SET, "0"), ErrorCode.INVALID_REQUEST, "at least 1"),
        (
            (BROKER, ""),
            ("log.cleaner.io.max.bytes.per.second", SET, "nan"),
            ErrorCode.INVALID_REQUEST,
            "least",
        ),
        (
            (BROKER, "1"),
            ("log.cleaner.min.compaction.lag.ms", SET, str(2**63 - 1)),
            ErrorCode.INVALID_REQUEST,
            "must not be greater than max.compaction.lag.ms (1000)",
        ),
        (
            (BROKER, ""),
            ("log.cleaner.min.compaction.lag.ms", SET, "1001"),
            ErrorCode.INVALID_REQUEST,
            "must not be greater than max.compaction.lag.ms (1000)",
        ),
        (
            (BROKER, ""),
            ("leader.replication.throttled.rate", SET, "-1"),
            ErrorCode.INVALID_REQUEST,
            "least 0",
        ),
        ((BROKER, ""), ("cordoned.log.dirs", SET, "/d"), ErrorCode.INVALID_REQUEST, "for one broker"),
        ((METRICS, ""), ("metrics", SET, "x"), ErrorCode.INVALID_REQUEST, "characters"),
        ((METRICS, "m"), ("metric", SET, "x"), ErrorCode.INVALID_REQUEST, "did you mean metrics"),
        ((METRICS, "m"), ("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST, "between 100 and 3600000"),
        ((METRICS, "m"), ("match", SET, "client=x"), ErrorCode.INVALID_CONFIG, "client_id"),
        ((METRICS, "m"), ("match", APPEND, "client_id"), ErrorCode.INVALID_CONFIG, "name=pattern"),
        ((99, "x"), ("x", SET, "x"), ErrorCode.INVALID_REQUEST, "type 99"),
    ],
)
def test_what_cannot_be_configured_is_refused_with_the_reason(
    make_controller: Callable[..., ControllerHarness],
    resource: tuple[int, str],
    entry: tuple[str, int, str | None],
    expected: ErrorCode,
    said: str,
) -> None:
    cluster = make_controller(0, ControllerConfig(topic_defaults={"max.compaction.lag.ms": "1000"}))
    cluster.start_brokers(1)
    before = cluster.image
    answer = alter(cluster, entry, resource=resource)
    assert answer.error_code == expected, answer.error_message
    assert said in answer.error_message
    assert len(answer.error_message) < 400
    assert cluster.image is before


THROTTLES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


@pytest.mark.parametrize("resource", [(BROKER, ""), (BROKER, "1")])
def test_throttles_are_stored_and_can_be_deleted_whether_set_or_not(
    cluster: ControllerHarness, resource: tuple[int, str]
) -> None:
    before = cluster.image
    deletion = [(name, DELETE, None) for name in THROTTLES]
    assert alter(cluster, *deletion, resource=resource).error_code == 0
    assert cluster.image is before, "kafka-reassign-partitions --verify sends this to every broker"
    assert alter(cluster, *[(name, SET, "1000") for name in THROTTLES], resource=resource).error_code == 0
    assert dict(cluster.image.configs[resource]) == dict.fromkeys(THROTTLES, "1000")
    assert alter(cluster, *deletion, resource=resource).error_code == 0
    assert resource not in cluster.image.configs


def test_every_dynamic_property_can_be_set_to_its_default_and_deleted(cluster: ControllerHarness) -> None:
    names = sorted(DYNAMIC_KEYS.keys() - {"min.insync.replicas"})
    defaults = {name: DYNAMIC_KEYS[name].default for name in names}
    entries = [(name, SET, "1" if default is None else default) for name, default in defaults.items()]
    assert alter(cluster, *entries, resource=(BROKER, "1")).error_code == 0
    assert sorted(cluster.image.configs[BROKER, "1"]) == names
    assert alter(cluster, *[(name, DELETE, None) for name in names], resource=(BROKER, "1")).error_code == 0
    assert (BROKER, "1") not in cluster.image.configs


def test_subscription_to_client_metrics_is_kept_until_its_last_key_is_deleted(
    cluster: ControllerHarness,
) -> None:
    entries = (
        ("metrics", SET, "org.apache.kafka"),
        ("interval.ms", SET, "100"),
        ("match", SET, "client_software_name=apache-kafka-java, client_software_version=4\\..*"),
    )
    assert alter(cluster, *entries, resource=(METRICS, "m")).error_code == 0
    assert dict(cluster.image.configs[METRICS, "m"]) == {name: value for name, _, value in entries}
    deletion = [(name, DELETE, None) for name, _, _ in entries]
    assert alter(cluster, *deletion, resource=(METRICS, "m")).error_code == 0
    assert (METRICS, "m") not in cluster.image.configs


def test_resource_named_twice_is_refused_and_others_are_changed(cluster: ControllerHarness) -> None:
    cluster.create_topic("t")
    cluster.create_topic("bystander")
    entry = AlterableConfig(name="retention.ms", config_operation=SET, value="5")
    resources = [
        AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[entry])
        for name in ("t", "bystander", "t")
    ]
    request = IncrementalAlterConfigsRequest(resources=resources)
    response = cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    assert [answer.error_code for answer in response.responses] == [ErrorCode.INVALID_REQUEST, 0, 42]
    assert dict(cluster.image.topic_config("t")) == {}
    assert dict(cluster.image.topic_config("bystander")) == {"retention.ms": "5"}


def test_value_at_the_limit_is_kept(cluster: ControllerHarness) -> None:
    cluster.create_topic("t")
    value = ",".join(["0:1"] * 8192)
    assert len(value) == MAX_VALUE_CHARS
    assert alter(cluster, ("leader.replication.throttled.replicas", SET, value)).error_code == 0
    longer = alter(cluster, ("leader.replication.throttled.replicas", SET, value + " "))
    assert longer.error_code == ErrorCode.INVALID_CONFIG


def test_key_that_is_no_longer_known_can_still_be_deleted(cluster: ControllerHarness) -> None:
    from pykraft.metadata_log.records import ConfigRecord

    cluster.append((ConfigRecord(BROKER, "", "log.gone", "1"),))
    assert (
        alter(cluster, ("log.gone", SET, "2"), resource=(BROKER, "")).error_code == ErrorCode.INVALID_CONFIG
    )
    assert alter(cluster, ("log.gone", DELETE, None), resource=(BROKER, "")).error_code == 0
    assert (BROKER, "") not in cluster.image.configs


def test_with_eligible_leader_replicas_no_single_broker_has_its_own_min_isr(
    cluster: ControllerHarness,
) -> None:
    entry = ("min.insync.replicas", SET, "2")
    assert alter(cluster, entry, resource=(BROKER, "1")).error_code == 0
    cluster.append((FeatureLevelRecord("eligible.leader.replicas.version", 1),))
    assert alter(cluster, entry, resource=(BROKER, "2")).error_code == ErrorCode.INVALID_CONFIG
    assert alter(cluster, entry, resource=(BROKER, "")).error_code == 0
    assert alter(cluster, ("min.insync.replicas", DELETE, None), resource=(BROKER, "1")).error_code == 0


def test_with_eligible_leader_replicas_the_min_isr_of_all_brokers_can_only_be_set(
    cluster: ControllerHarness,
) -> None:
    entry, delete = ("min.insync.replicas", SET, "2"), ("min.insync.replicas", DELETE, None)
    assert alter(cluster, entry, resource=(BROKER, "")).error_code == 0
    assert alter(cluster, delete, resource=(BROKER, "")).error_code == 0
    assert alter(cluster, entry, resource=(BROKER, "")).error_code == 0
    cluster.append((FeatureLevelRecord("eligible.leader.replicas.version", 1),))
    assert alter(cluster, delete, resource=(BROKER, "")).error_code == ErrorCode.INVALID_CONFIG
    assert replace_all(cluster, (BROKER, ""), {}).error_code == ErrorCode.INVALID_CONFIG
    assert replace_all(cluster, (BROKER, ""), {"min.insync.replicas": "1"}).error_code == 0


def test_an_invalid_value_of_a_broker_is_an_invalid_request_by_either_api(cluster: ControllerHarness) -> None:
    """As by Kafka's brokers, while one of a topic is an invalid configuration."""
    entry = ("log.retention.ms", SET, "x")
    assert alter(cluster, entry, resource=(BROKER, "1")).error_code == ErrorCode.INVALID_REQUEST
    replaced = replace_all(cluster, (BROKER, "1"), {"log.retention.ms": "x"})
    assert replaced.error_code == ErrorCode.INVALID_REQUEST
    unknown = replace_all(cluster, (BROKER, "1"), {"log.retension.ms": "5"})
    assert unknown.error_code == ErrorCode.INVALID_CONFIG


def test_created_topic_is_answered_with_the_sources_of_its_configs(cluster: ControllerHarness) -> None:
    from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreatableTopicConfig

    alter(cluster, ("log.retention.ms", SET, "6"), resource=(BROKER, ""))
    (result,) = cluster.create_topics(
        CreatableTopic(
            name="t",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="segment.ms", value="9")],
        )
    )
    response = {config.name: (config.value, int(config.config_source)) for config in present(result.configs)}
    assert response["segment.ms"] == ("9", 1)
    assert response["retention.ms"] == ("6", 3)
    assert response["segment.bytes"] == ("1073741824", 5)


def test_lags_of_compaction_must_fit_those_that_the_topic_inherits(cluster: ControllerHarness) -> None:
    from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreatableTopicConfig

    alter(cluster, ("log.cleaner.max.compaction.lag.ms", SET, "1000"), resource=(BROKER, ""))
    for name, value, expected in (
        ("t", "1001", ErrorCode.INVALID_CONFIG),
        ("u", "1000", ErrorCode.NONE),
    ):
        config = CreatableTopicConfig(name="min.compaction.lag.ms", value=value)
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=[config])
        (result,) = cluster.create_topics(topic)
        assert result.error_code == expected
    assert alter(cluster, ("max.compaction.lag.ms", SET, "999"), resource=(TOPIC, "u")).error_code == (
        ErrorCode.INVALID_CONFIG
    )
    assert alter(cluster, ("min.compaction.lag.ms", SET, "1001"), resource=(TOPIC, "u")).error_code == (
        ErrorCode.INVALID_CONFIG
    )
