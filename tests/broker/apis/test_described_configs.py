"""DescribeConfigs and log levels, as a broker and a controller answer them, without a cluster."""

import asyncio
import logging
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from pykraft.broker.apis.cluster import describe_configs, incremental_alter_configs
from pykraft.broker.apis.services import ControllerServices
from pykraft.broker.serving.api import ReceivedRequest
from pykraft.configuration.keys import ConfigType
from pykraft.configuration.server_keys import DYNAMIC_KEYS, SERVER_KEYS
from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.codec.schema import Body
from pykraft.kafka_protocol.enums import ConfigSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import configs as config_messages
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.records import ConfigRecord, Record, TopicRecord
from pykraft.metadata_log.replay import replay
from pykraft.node.config import load_server_config
from pykraft.runtime.loggers import ProcessLoggers
from pykraft.runtime.network.streams import size_of
from pykraft.runtime.slices import Slices
from pykraft.runtime.turns import UnlimitedTurn
from tests.broker.answers import as_read

SET, DELETE, APPEND = 0, 1, 2
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
FILE = """
process.roles=controller
node.id=7
listeners=CONTROLLER://:9093
controller.listener.names=CONTROLLER
num.io.threads=20
queued.max.requests=9
log.retention.hours=2
num.partitions=1
log.dirs=/a,/b
"""


@dataclass
class View:
    node_id: int = 7
    cluster_id: str = "c"
    image: MetadataImage = EMPTY_IMAGE


@dataclass
class ActiveController:
    """Answers every alteration with success, or cannot be reached."""

    reachable: bool = True
    asked: list[config_messages.IncrementalAlterConfigsRequest] = field(default_factory=list)

    async def forward(
        self, context: object, api_key: int, api_version: int, body: bytes, *_: object, **__: object
    ) -> bytes:
        if not self.reachable:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no leader")
        assert api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS
        request = config_messages.IncrementalAlterConfigsRequest.decode(body, api_version)
        self.asked.append(request)
        answers = [
            config_messages.AlterConfigsResourceResponse(
                error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
        return config_messages.IncrementalAlterConfigsResponse(responses=answers).encode(api_version)


class Node:
    """The parts that serve a controller's listener; those of a broker are the same here."""

    def __init__(self, *records: Record) -> None:
        self.active = ActiveController()
        image = replay(EMPTY_IMAGE, records, 0, 1)[0] if records else EMPTY_IMAGE
        self.services = ControllerServices(
            metadata=View(image=image),
            controller=self.active,
            server_properties=load_server_config(FILE).given,
            kraft_version=lambda: 0,
            loggers=ProcessLoggers(),
            slices=Slices(UnlimitedTurn(), "tests"),
            leader_id=lambda: None,
        )

    def describe(
        self, kind: int, name: str, keys: list[str] | None = None
    ) -> dict[str, config_messages.DescribeConfigsResourceResult]:
        wanted = config_messages.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        request = config_messages.DescribeConfigsRequest(
            resources=[wanted], include_synonyms=True, include_documentation=True
        )
        (result,) = as_read(describe_configs.handle(self.services, RequestContext(), request, 4), 4).results
        assert result.error_code == 0, result.error_message
        return {config.name: config for config in result.configs}

    def alter(
        self, *resources: config_messages.AlterConfigsResource, validate_only: bool = False
    ) -> list[config_messages.AlterConfigsResourceResponse]:
        request = config_messages.IncrementalAlterConfigsRequest(
            resources=list(resources), validate_only=validate_only
        )
        received = ReceivedRequest(config_messages.IncrementalAlterConfigsRequest, 1, request.encode(1))
        answer = asyncio.run(incremental_alter_configs.forward(self.services, RequestContext(), received))
        body = answer if isinstance(answer, bytes) else answer.encode(1)
        return list(config_messages.IncrementalAlterConfigsResponse.decode(body, 1).responses)


def resource(
    kind: int, name: str, *entries: tuple[str, int, str | None]
) -> config_messages.AlterConfigsResource:
    configs = [
        config_messages.AlterableConfig(name=key, config_operation=op, value=value)
        for key, op, value in entries
    ]
    return config_messages.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def synonyms(config: config_messages.DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(one.name, one.value, one.source) for one in config.synonyms]


def test_broker_is_described_with_every_property_that_kafka_lists() -> None:
    shown = Node().describe(BROKER, "7")
    assert len(shown) > 330 and shown.keys() == SERVER_KEYS.keys(), (
        "throttles are shown only where they are set"
    )
    assert all(config.documentation for config in shown.values())
    assert all(config.read_only == (name not in DYNAMIC_KEYS) for name, config in shown.items())
    for name, config in shown.items():
        passwords = config.config_type == ConfigType.PASSWORD.value
        assert config.is_sensitive == passwords and not (passwords and config.value), name
    assert (shown["broker.id"].value, shown["queued.max.request.bytes"].value) == ("7", "-1")
    assert synonyms(shown["broker.rack"]) == [] and shown["broker.rack"].value is None


def test_values_of_the_file_are_shown_even_if_nothing_reads_them() -> None:
    shown = Node().describe(BROKER, "7")
    static, default = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG
    assert synonyms(shown["num.io.threads"]) == [
        ("num.io.threads", "20", static),
        ("num.io.threads", "8", default),
    ]
    assert (shown["queued.max.requests"].value, shown["queued.max.requests"].read_only) == ("9", True)
    assert (shown["log.retention.hours"].value, shown["log.retention.hours"].config_source) == ("2", static)
    assert synonyms(shown["log.retention.hours"]) == [
        ("log.retention.hours", "2", static),
        ("log.retention.hours", "168", default),
    ]


def test_value_in_another_unit_is_listed_only_after_one_of_the_property_itself() -> None:
    """As by Kafka. It is in force, all the same."""
    node = Node(TopicRecord("t", Uuid(b"t" * 16)), ConfigRecord(TOPIC, "t", "retention.ms", "5"))
    dynamic, static, default = (
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.STATIC_BROKER_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    )
    retention = node.describe(BROKER, "7")["log.retention.ms"]
    assert (retention.value, synonyms(retention), retention.config_source) == ("7200000", [], static)
    shown = node.describe(TOPIC, "t")
    assert (shown["retention.ms"].value, synonyms(shown["retention.ms"])) == (
        "5",
        [("retention.ms", "5", dynamic)],
    )
    segment = shown["segment.ms"]
    assert (segment.value, synonyms(segment), segment.config_source) == ("604800000", [], default)
    all_brokers = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    node = Node(TopicRecord("t", Uuid(b"t" * 16)), ConfigRecord(BROKER, "", "log.retention.ms", "6"))
    stated = [("log.retention.hours", "2", static), ("log.retention.hours", "168", default)]
    for one in (node.describe(BROKER, "7")["log.retention.ms"], node.describe(TOPIC, "t")["retention.ms"]):
        assert (one.value, synonyms(one)) == ("6", [("log.retention.ms", "6", all_brokers), *stated])


def test_value_that_a_file_sets_to_the_default_comes_from_the_file() -> None:
    shown = Node().describe(BROKER, "7")["num.partitions"]
    assert synonyms(shown) == [
        ("num.partitions", "1", ConfigSource.STATIC_BROKER_CONFIG),
        ("num.partitions", "1", ConfigSource.DEFAULT_CONFIG),
    ]


def test_values_set_while_running_take_precedence_and_throttles_appear() -> None:
    rate = "leader.replication.throttled.rate"
    node = Node(
        ConfigRecord(BROKER, "7", "num.io.threads", "30"),
        ConfigRecord(BROKER, "", "num.io.threads", "40"),
        ConfigRecord(BROKER, "7", rate, "1000"),
        ConfigRecord(BROKER, "8", "follower.replication.throttled.rate", "1"),
    )
    shown = node.describe(BROKER, "7")
    assert [value for _, value, _ in synonyms(shown["num.io.threads"])] == ["30", "40", "20", "8"]
    assert (shown[rate].value, shown[rate].config_source) == ("1000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert "follower.replication.throttled.rate" not in shown


def test_subscriptions_to_client_metrics_are_described_with_their_defaults() -> None:
    node = Node(ConfigRecord(METRICS, "m", "interval.ms", "1000"))
    shown = node.describe(METRICS, "m")
    assert {name: config.value for name, config in shown.items()} == {
        "interval.ms": "1000",
        "match": "",
        "metrics": "",
    }
    assert shown["interval.ms"].config_source == ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    assert node.describe(METRICS, "other")["interval.ms"].value == "300000"


def test_no_names_or_an_empty_list_of_names_ask_for_all_configurations() -> None:
    node = Node(TopicRecord("t", Uuid(b"t" * 16)), ConfigRecord(TOPIC, "t", "retention.ms", "5"))
    for kind, name in ((TOPIC, "t"), (BROKER, "7"), (METRICS, "m"), (GROUP, "g"), (LOGGER, "7")):
        everything = node.describe(kind, name)
        assert len(everything) > 2
        assert node.describe(kind, name, []) == everything
        one = next(iter(everything))
        assert node.describe(kind, name, [one, "no.such.name", one]) == {one: everything[one]}
        assert node.describe(kind, name, ["no.such.name"]) == {}
    assert len(node.describe(TOPIC, "t", [])) == 33
    assert node.describe(BROKER, "", []) == {}


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("asked", [False, True])
def test_topics_with_values_of_their_own_are_described_key_by_key(version: int, asked: bool) -> None:
    """However many of them, and wherever they stand among the others."""
    keys = sorted(TOPIC_KEYS)
    own = {
        "none": [],
        "first": keys[:1],
        "last": keys[-1:],
        "neighbours": keys[3:5],
        "spread": keys[::4],
        "all": keys,
        "unknown": ["not.a.key"],
    }
    value = dict.fromkeys(keys, "1")
    records: list[Record] = []
    for number, (topic, names) in enumerate(own.items()):
        records.append(TopicRecord(topic, Uuid(bytes([number + 1]) * 16)))
        records += [ConfigRecord(TOPIC, topic, name, value.get(name, "x")) for name in names]
    node = Node(*records)
    resources = [
        config_messages.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=topic, configuration_keys=None
        )
        for topic in own
    ]
    request = config_messages.DescribeConfigsRequest(
        resources=resources, include_synonyms=asked, include_documentation=asked
    )
    answer = as_read(describe_configs.handle(node.services, RequestContext(), request, version), version)
    assert [result.resource_name for result in answer.results] == list(own)
    for result in answer.results:
        names = own[result.resource_name]
        shown = [key for key in keys if key in names or not TOPIC_KEYS[key].is_internal]
        assert [config.name for config in result.configs] == shown
        for config in result.configs:
            is_own = config.name in names
            assert (config.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG) == is_own
            assert not is_own or config.value == "1"
            stated = [one.name for one in config.synonyms]
            assert (stated[:1] == [config.name]) if asked and is_own else (asked or not stated)
            assert bool(config.documentation) == (asked and version >= 3)


def test_what_many_topics_have_in_common_is_encoded_once() -> None:
    many = 500
    records: list[Record] = []
    for number in range(many):
        records.append(TopicRecord(f"t{number}", Uuid(number.to_bytes(16, "big"))))
        records.append(ConfigRecord(TOPIC, f"t{number}", "retention.ms", str(number)))
    node = Node(*records)
    request = config_messages.DescribeConfigsRequest(
        resources=[
            config_messages.DescribeConfigsResource(
                resource_type=TOPIC, resource_name=f"t{number}", configuration_keys=None
            )
            for number in range(many)
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    at_once(describe_configs.handle(node.services, RequestContext(), request, 4))  # code is compiled
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        body = Body()
        answer = at_once(describe_configs.handle(node.services, RequestContext(), request, 4))
        at_once(answer.encode_in_slices(4, body))
        chunks = at_once(body.in_chunks())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    size_bytes = sum(map(size_of, chunks))
    assert size_bytes > 1_500_000
    assert peak - before < size_bytes / 4


def test_configurations_are_described_in_slices() -> None:
    node = Node(*(TopicRecord(f"t{n}", Uuid(n.to_bytes(16, "big"))) for n in range(50)))
    for kind, names, least in ((TOPIC, [f"t{n}" for n in range(50)], 50), (BROKER, ["7"], 300)):
        resources = [
            config_messages.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
        request = config_messages.DescribeConfigsRequest(resources=resources)
        handling = describe_configs.handle(node.services, RequestContext(), request, 4)
        assert sum(1 for _ in handling) >= least


# --- log levels ------------------------------------------------------------------------------------------


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("pykraft.test.described_configs")
    root_level = logging.getLogger().level
    yield logger
    logger.setLevel(logging.NOTSET)
    logging.getLogger().setLevel(root_level)


def test_log_levels_are_shown_set_and_reset(logger: logging.Logger) -> None:
    node = Node()
    (done,) = node.alter(resource(LOGGER, "7", (logger.name, SET, "TRACE"), ("root", SET, "ERROR")))
    assert done.error_code == 0
    shown = node.describe(LOGGER, "7")
    assert (shown[logger.name].value, shown["root"].value) == ("TRACE", "ERROR")
    assert logger.isEnabledFor(5) and not shown["root"].read_only
    assert shown["root"].config_source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    node.alter(resource(LOGGER, "7", (logger.name, DELETE, None)))
    assert node.describe(LOGGER, "7")[logger.name].value == "ERROR", "the level of the parent logger"
    assert node.active.asked == [], "each node has its own levels"


@pytest.mark.parametrize(
    ("node_id", "entry", "expected"),
    [
        ("8", ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
        ("", ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
        ("7", ("no.such.logger", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        ("7", ("no.such.logger", DELETE, None), ErrorCode.INVALID_CONFIG),
        ("7", ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ("7", ("root", SET, None), ErrorCode.INVALID_CONFIG),
        ("7", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ("7", ("root", APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        ("7", ("root", 99, "DEBUG"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_log_level_prevents_every_change_of_its_request(
    logger: logging.Logger, node_id: str, entry: tuple[str, int, str | None], expected: ErrorCode
) -> None:
    node = Node()
    before = node.describe(LOGGER, "7")[logger.name].value
    (refused,) = node.alter(resource(LOGGER, node_id, (logger.name, SET, "FATAL"), entry))
    assert (refused.error_code, bool(refused.error_message)) == (expected, True)
    assert node.describe(LOGGER, "7")[logger.name].value == before
    assert "no.such.logger" not in node.describe(LOGGER, "7")


def test_validating_log_levels_changes_none(logger: logging.Logger) -> None:
    node = Node()
    before = node.describe(LOGGER, "7")[logger.name].value
    (done,) = node.alter(resource(LOGGER, "7", (logger.name, SET, "FATAL")), validate_only=True)
    assert done.error_code == 0 and node.describe(LOGGER, "7")[logger.name].value == before


def test_log_levels_and_configurations_of_one_request_are_handled_separately(logger: logging.Logger) -> None:
    node = Node()
    level = resource(LOGGER, "7", (logger.name, SET, "FATAL"))
    answers = node.alter(level, resource(BROKER, "7", ("num.io.threads", SET, "9")))
    assert {(one.resource_type, one.error_code) for one in answers} == {(LOGGER, 0), (BROKER, 0)}
    assert [[one.resource_type for one in request.resources] for request in node.active.asked] == [[BROKER]]
    assert node.describe(LOGGER, "7")[logger.name].value == "FATAL"
    twice = node.alter(level, level)
    assert [one.error_code for one in twice] == [ErrorCode.INVALID_REQUEST] * 2


class CountedSlices(Slices):
    """Counts the slices of what it finishes."""

    def __init__(self) -> None:
        super().__init__(UnlimitedTurn(), "tests")
        self.count = 0

    async def finish(self, work: Iterator[None]) -> None:
        self.count += sum(1 for _ in work)


def test_very_many_resources_are_told_apart_and_answered_in_slices() -> None:
    node = Node()
    slices = CountedSlices()
    node.services = replace(node.services, slices=slices)
    dirs = resource(BROKER, "7", *[("num.io.threads", SET, "1")] * 3, ("cordoned.log.dirs", SET, "/nowhere"))
    answers = node.alter(*[resource(LOGGER, "7")] * 100, *[resource(TOPIC, "t")] * 200, dirs)
    assert [(one.resource_type, one.error_code) for one in answers] == [
        (BROKER, ErrorCode.INVALID_CONFIG),
        *[(TOPIC, ErrorCode.NONE)] * 200,
        *[(LOGGER, ErrorCode.INVALID_REQUEST)] * 100,
    ]
    assert slices.count >= 301 + 100


def test_without_a_controller_no_log_level_of_a_mixed_request_is_set(logger: logging.Logger) -> None:
    node = Node()
    node.active.reachable = False
    before = node.describe(LOGGER, "7")[logger.name].value
    with pytest.raises(KafkaError, match="no leader"):
        node.alter(
            resource(LOGGER, "7", (logger.name, SET, "FATAL")),
            resource(BROKER, "7", ("num.io.threads", SET, "9")),
        )
    assert node.describe(LOGGER, "7")[logger.name].value == before


def test_only_a_node_knows_which_directories_it_can_cordon() -> None:
    node = Node()
    for name, entries, code in (
        ("7", "/a, /b", ErrorCode.NONE),
        ("7", "*", ErrorCode.NONE),
        ("7", "/c", ErrorCode.INVALID_CONFIG),
        ("7", "*,/a", ErrorCode.INVALID_CONFIG),
        ("8", "/c", ErrorCode.NONE),
    ):
        asked = len(node.active.asked)
        cordon = resource(BROKER, name, ("cordoned.log.dirs", SET, entries))
        answers = node.alter(cordon, resource(TOPIC, "t", ("retention.ms", SET, "5")))
        assert sorted((it.resource_type, it.error_code) for it in answers) == [(TOPIC, 0), (BROKER, code)]
        (passed_on,) = node.active.asked[asked:]
        assert len(passed_on.resources) == (1 if code else 2)
