"""Unmodified admin clients on configurations, features, directories and the broker registry.

Bad input gets an error that tells what is wrong, changes nothing, and affects no other client.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigSource, ResourceType
from confluent_kafka.admin import ConfigResource as ConfluentResource

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import ConfigChange
from pykraft.kafka_protocol.api_keys import ApiKey, request_class
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.enums import ConfigOperation
from pykraft.kafka_protocol.enums import ConfigResourceType as OurResourceType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import encode_request
from pykraft.kafka_protocol.messages import cluster as cluster_messages
from pykraft.kafka_protocol.messages import configs as config_messages
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from pykraft.testing.processes.wire_client import WireClient
from tests.interop.clusters import addresses_of, create_in_sync, own_cluster, printed_by, wait_ready
from tests.narrowing import present

M = TypeVar("M", bound=Message)

with warnings.catch_warnings():
    # It reads its message definitions by a function that Python 3.11 deprecated and 3.13 restored.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource
    from kafka.errors import InvalidUpdateVersionError

pytestmark = [
    pytest.mark.interop,
    # kafka-python leaves sockets of its closed loop to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NewTopic = Callable[..., str]


@pytest.fixture(scope="module")
def admin(trio: Cluster) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=trio.bootstrap_servers)) as client:
        yield client


def described(admin: KafkaAdminClient, kind: str, name: str) -> dict[str, dict[str, Any]]:
    found = admin.describe_configs([ConfigResource(kind, name)], include_synonyms=True, config_filter="all")
    return found[kind.lower()][name]  # type: ignore[no-any-return]


def alter(admin: KafkaAdminClient, kind: str, name: str, configs: dict[str, Any], **options: bool) -> str:
    outcome = admin.alter_configs(
        [ConfigResource(kind, name, configs=configs)], raise_on_unknown=False, **options
    )
    return str(outcome[kind.lower()][name])


def alter_all_brokers(trio: Cluster, *changes: ConfigChange) -> None:
    """Allow the empty name for all brokers, which kafka-python refuses."""
    with AdminClient(trio.bootstrap_servers) as client:
        client.alter_configs(OurResourceType.BROKER, "", changes)


def produce(trio: Cluster, topic: str, size: int = 10) -> ConfluentError | None:
    """Write one record; returns why it was refused."""
    outcome: list[Any] = []
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers, "message.max.bytes": 4_000_000})
    producer.produce(topic, b"v" * size, on_delivery=lambda error, message: outcome.append(error))
    assert producer.flush(20) == 0
    return outcome[0]  # type: ignore[no-any-return]


def test_broker_wide_value_is_set_for_all_and_for_one_while_they_run(
    trio: Cluster, admin: KafkaAdminClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    assert produce(trio, topic, 100_000) is None
    alter_all_brokers(trio, ConfigChange("message.max.bytes", ConfigOperation.SET, "50000"))
    try:
        wait_until("it holds", lambda: produce(trio, topic, 100_000) is not None, PATIENCE_S)
        refused = produce(trio, topic, 100_000)
        assert refused is not None and refused.code() == ConfluentError.MSG_SIZE_TOO_LARGE
        value = described(admin, "TOPIC", topic)["max.message.bytes"]
        assert (value["value"], value["config_source"]) == ("50000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        assert alter(admin, "BROKER", "1", {"message.max.bytes": "60000"}) == "OK"
        wait_until(
            "described by its broker",
            lambda: described(admin, "BROKER", "1")["message.max.bytes"]["value"] == "60000",
            10,
        )
        one = described(admin, "BROKER", "1")["message.max.bytes"]
        assert one["config_source"] == "DYNAMIC_BROKER_CONFIG" and not one["read_only"]
        assert [synonym["value"] for synonym in one["synonyms"]] == ["60000", "50000", "1048588"]
        assert described(admin, "BROKER", "2")["message.max.bytes"]["value"] == "50000"
        assert described(admin, "BROKER", "1")["node.id"]["read_only"]
    finally:
        alter_all_brokers(trio, ConfigChange("message.max.bytes", ConfigOperation.DELETE))
        assert alter(admin, "BROKER", "1", {"message.max.bytes": ("DELETE", None)}) == "OK"
    wait_until("as before", lambda: produce(trio, topic, 100_000) is None, PATIENCE_S)
    wait_until(
        "described as before",
        lambda: described(admin, "BROKER", "1")["message.max.bytes"]["config_source"] == "DEFAULT_CONFIG",
        PATIENCE_S,
    )


def test_both_alter_apis_of_both_clients(trio: Cluster, admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    topic = new_topic(retention_ms="5000")
    assert alter(admin, "TOPIC", topic, {"segment.ms": "7000"}, incremental=False) == "OK"
    wait_until("both", lambda: described(admin, "TOPIC", topic)["segment.ms"]["value"] == "7000", PATIENCE_S)
    assert described(admin, "TOPIC", topic)["retention.ms"]["value"] == "5000"
    appended = {"cleanup.policy": ("APPEND", "compact"), "segment.ms": ("DELETE", None)}
    assert alter(admin, "TOPIC", topic, appended, validate_only=True) == "OK"
    assert alter(admin, "TOPIC", topic, appended) == "OK"
    wait_until(
        "appended",
        lambda: described(admin, "TOPIC", topic)["cleanup.policy"]["value"] == "delete,compact",
        PATIENCE_S,
    )
    confluent = ConfluentAdmin({"bootstrap.servers": trio.bootstrap_servers})
    entry = ConfigEntry("retention.ms", "6000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfluentResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    confluent.incremental_alter_configs([resource])[resource].result(20)
    replaced = ConfluentResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "9000"})
    with pytest.deprecated_call():
        confluent.alter_configs([replaced])[replaced].result(20)

    def only_one_is_set() -> bool:
        asked = ConfluentResource(ResourceType.TOPIC, topic)
        entries = confluent.describe_configs([asked])[asked].result(20)
        dynamic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {key for key, entry in entries.items() if entry.source == dynamic} == {"segment.ms"}

    wait_until("replaced", only_one_is_set, PATIENCE_S)


def test_group_has_a_session_of_its_own(admin: KafkaAdminClient, fresh: Callable[[str], str]) -> None:
    group = fresh("group")
    assert alter(admin, "GROUP", group, {"consumer.session.timeout.ms": "50000"}) == "OK"
    wait_until(
        "described",
        lambda: described(admin, "GROUP", group)["consumer.session.timeout.ms"]["value"] == "50000",
        PATIENCE_S,
    )
    wait_until("listed", lambda: group in admin.list_config_resources(["GROUP"]).get("group", ()), PATIENCE_S)
    listed = admin.list_config_resources()
    assert listed["broker"] == ["1", "2", "3"]


def test_features_are_described_and_changed(trio: Cluster, admin: KafkaAdminClient) -> None:
    known = admin.describe_features()
    assert known["metadata.version"]["finalized"] == (30, 30)
    assert known["metadata.version"]["supported"] == (7, 30)
    assert known["group.version"]["finalized"] == (1, 1)
    wait_until("controllers registered", lambda: _can_downgrade(admin), PATIENCE_S)
    assert admin.update_features({"metadata.version": ("SAFE_DOWNGRADE", 27)}) == {"metadata.version": "OK"}
    try:
        wait_until(
            "seen",
            lambda: admin.describe_features()["metadata.version"]["finalized"] == (27, 27),
            PATIENCE_S,
        )
        with pytest.raises(InvalidUpdateVersionError):
            admin.update_features({"metadata.version": 31})
        with pytest.raises(InvalidUpdateVersionError):
            admin.update_features({"transaction.version": 3}, validate_only=True)
    finally:
        assert admin.update_features({"metadata.version": 30}) == {"metadata.version": "OK"}


def _can_downgrade(admin: KafkaAdminClient) -> bool:
    """Whether every controller has registered its levels, which only an update to another level requires."""
    try:
        admin.update_features({"metadata.version": ("SAFE_DOWNGRADE", 27)}, validate_only=True)
    except InvalidUpdateVersionError:
        return False
    return True


def test_log_directories_are_described_with_sizes(
    trio: Cluster, admin: KafkaAdminClient, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    assert produce(trio, topic, 5000) is None
    for answer in admin.describe_log_dirs({topic: [0, 1]}):
        (log_dir,) = answer["log_dirs"]
        assert log_dir["error_code"] == 0 and log_dir["log_dir"] == str(trio.log_dirs[answer["broker"]])
        assert log_dir["total_bytes"] > log_dir["usable_bytes"] > 0
        (shown,) = log_dir["topics"]
        assert [partition["partition_index"] for partition in shown["partitions"]] == [0, 1]
        assert not any(p["is_future_key"] or p["offset_lag"] for p in shown["partitions"])
        assert sum(partition["partition_size"] for partition in shown["partitions"]) >= 5000
    (all_of_one,) = admin.describe_log_dirs(brokers=[2])
    assert len(all_of_one["log_dirs"][0]["topics"]) >= 1
    (nothing,) = admin.describe_log_dirs({"absent": [0]}, brokers=[1])
    assert nothing["log_dirs"][0]["topics"] == []


def test_cluster_is_described_with_its_fenced_brokers(admin: KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()
    assert [broker["broker_id"] for broker in cluster["brokers"]] == [1, 2, 3]
    assert not any(broker["is_fenced"] for broker in cluster["brokers"])


# --- bad input -------------------------------------------------------------------------------------------


def ask(cluster: Cluster, request: Request[M], version: int) -> M:
    """Send one request to the first broker on its own connection."""
    with WireClient(addresses_of(cluster)[1]) as client:
        return client.call(request, version)


def test_bad_configuration_requests_change_nothing_and_affect_no_other_client(
    trio: Cluster, admin: KafkaAdminClient, new_topic: NewTopic
) -> None:
    topic, other_client = new_topic(), new_topic()
    incremental = config_messages

    def resource(kind: int, name: str, *entries: tuple[str, int, str | None]) -> Any:
        configs = [
            incremental.AlterableConfig(name=key, config_operation=op, value=value)
            for key, op, value in entries
        ]
        return incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)

    good = resource(2, other_client, ("retention.ms", 0, "77"))
    cases: list[tuple[Any, set[ErrorCode]]] = [
        ([resource(2, "absent", ("retention.ms", 0, "1"))], {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        ([resource(2, topic, ("nonsense", 0, "1"))], {ErrorCode.INVALID_CONFIG}),
        ([resource(2, topic, ("retention.ms", 0, "9" * 30_000))], {ErrorCode.INVALID_CONFIG}),
        ([resource(2, topic, ("retention.ms", 0, None))], {ErrorCode.INVALID_REQUEST}),
        ([resource(2, topic, ("retention.ms", 99, "1"))], {ErrorCode.INVALID_REQUEST}),
        ([resource(2, topic, ("retention.ms", 0, "1"))] * 2, {ErrorCode.INVALID_REQUEST}),
        ([resource(4, "9999", ("log.retention.ms", 0, "1"))], {ErrorCode.BROKER_ID_NOT_REGISTERED}),
        ([resource(4, "x", ("log.retention.ms", 0, "1"))], {ErrorCode.INVALID_REQUEST}),
        ([resource(4, "1", ("log.dirs", 0, "/x"))], {ErrorCode.INVALID_REQUEST}),
        ([resource(8, "1", ("no.such.logger", 0, "DEBUG"))], {ErrorCode.INVALID_CONFIG}),
        ([resource(8, "1", ("root", 0, "LOUD"))], {ErrorCode.INVALID_CONFIG}),
        ([resource(8, "1", ("root", 1, None))], {ErrorCode.INVALID_REQUEST}),
        ([resource(8, "2", ("root", 0, "DEBUG"))], {ErrorCode.INVALID_REQUEST}),
        ([resource(77, "x" * 30_000, ("a", 0, "b"))], {ErrorCode.INVALID_REQUEST}),
    ]
    for resources, expected in cases:
        request = incremental.IncrementalAlterConfigsRequest(resources=resources)
        response = ask(trio, request, 1)
        assert {ErrorCode(one.error_code) for one in response.responses} == expected
        assert all(one.error_message for one in response.responses)
    mixed = incremental.IncrementalAlterConfigsRequest(resources=[cases[0][0][0], good])
    response = ask(trio, mixed, 1)
    assert [one.error_code for one in response.responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    replace = config_messages.AlterConfigsRequest(
        resources=[
            config_messages.LegacyAlterConfigsResource(resource_type=2, resource_name="absent", configs=[])
        ]
    )
    refused = ask(trio, replace, 2)
    assert refused.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_until(
        "the good one", lambda: described(admin, "TOPIC", other_client)["retention.ms"]["value"] == "77", 10
    )
    assert described(admin, "TOPIC", topic)["retention.ms"]["config_source"] == "DEFAULT_CONFIG"
    assert produce(trio, other_client) is None


def test_bad_registry_feature_and_directory_requests_change_nothing(trio: Cluster) -> None:
    updates = cluster_messages
    for broker_id, code in (
        (9999, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (-1, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ):
        request = cluster_messages.UnregisterBrokerRequest(broker_id=broker_id)
        kept = ask(trio, request, 0)
        assert (kept.error_code, bool(kept.error_message)) == (code, True)
    for version in (0, 1, 2):
        keys = [updates.FeatureUpdateKey(feature="f" * 20_000, max_version_level=-3)] * 2
        update = updates.UpdateFeaturesRequest(feature_updates=keys)
        refused = ask(trio, update, version)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        empty = ask(trio, updates.UpdateFeaturesRequest(), version)
        assert empty.error_code == ErrorCode.INVALID_REQUEST
    for endpoint_type, code in (
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        cluster = cluster_messages.DescribeClusterRequest(endpoint_type=endpoint_type)
        shown = ask(trio, cluster, 2)
        assert shown.error_code == code and "endpoint type" in present(shown.error_message)
    unknown = config_messages.ListConfigResourcesRequest(resource_types=[2, 99])
    listed = ask(trio, unknown, 1)
    assert listed.error_code == ErrorCode.UNSUPPORTED_VERSION
    topics = [cluster_messages.DescribableLogDirTopic(topic="x" * 30_000, partitions=[-1, 2**31 - 1])]
    directories = ask(
        trio,
        cluster_messages.DescribeLogDirsRequest(topics=topics),
        5,
    )
    assert [result.topics for result in directories.results] == [[]]
    resources = [
        config_messages.DescribeConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in ((2, "absent"), (4, "2"), (4, "x"), (16, ""), (32, ""), (99, "y"))
    ]
    configs = ask(
        trio,
        config_messages.DescribeConfigsRequest(resources=resources),
        4,
    )
    assert [result.error_code for result in configs.results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        *[ErrorCode.INVALID_REQUEST] * 5,
    ]
    with AdminClient(trio.bootstrap_servers) as admin:
        assert {broker.id for broker in admin.describe_cluster().brokers} == {1, 2, 3}


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.ALTER_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.LIST_CONFIG_RESOURCES,
    ],
)
def test_malformed_request_costs_its_own_connection_only(
    trio: Cluster, new_topic: NewTopic, key: ApiKey
) -> None:
    topic = new_topic()
    version = request_class(key).MIN_VERSION
    whole = encode_request(request_class(key)(), version, 7, "bad")
    header = whole[: len(whole) - len(request_class(key)().encode(version))]
    for body in (b"\x7f" * 40, b""):
        with WireClient(addresses_of(trio)[1]) as client:
            client.send_frame(header + body)
            assert client.receive() is None
    assert produce(trio, topic) is None


def test_broker_that_will_not_return_is_unregistered() -> None:
    timers = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
    with own_cluster(3, timers) as cluster:
        create_in_sync(cluster, "t", 2)
        cluster.kill(3)

        def answer() -> Any:
            request = cluster_messages.UnregisterBrokerRequest(broker_id=3)
            return ask(cluster, request, 0)

        with AdminClient(cluster.bootstrap_servers) as client:
            wait_until(
                "fenced",
                lambda: {broker.id for broker in client.describe_cluster().brokers} == {1, 2},
                PATIENCE_S,
            )
        assert answer().error_code == ErrorCode.NONE
        assert answer().error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        with AdminClient(cluster.bootstrap_servers) as client:
            assert {broker.id for broker in client.describe_cluster().brokers} == {1, 2}
        assert produce(cluster, "t") is None
        cluster.restart(3)  # a broker that returns after all is accepted
        wait_ready(cluster)


def test_live_broker_that_is_unregistered_returns_by_itself() -> None:
    with own_cluster(3, {"broker.heartbeat.interval.ms": "300"}) as cluster:
        create_in_sync(cluster, "t", 3, {"min.insync.replicas": "2"})
        request = cluster_messages.UnregisterBrokerRequest(broker_id=3)
        answer = ask(cluster, request, 0)
        assert answer.error_code == ErrorCode.NONE
        for _ in range(3):
            assert produce(cluster, "t") is None
        cluster.wait_in_sync("t")
        assert "registered broker 3" in "".join(printed_by(cluster, node) for node in cluster.nodes)
