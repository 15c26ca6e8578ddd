"""Values that another version accepted and this one refuses: no node fails because of them."""

import pytest

from pykraft.configuration.client_metrics_keys import CLIENT_METRICS_KEYS
from pykraft.configuration.group_keys import GROUP_KEYS
from pykraft.configuration.keys import ConfigKey
from pykraft.configuration.server_keys import DYNAMIC_KEYS
from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.metadata_log.broker_configs import broker_wide_topic_configs, effective_dynamic_values
from pykraft.metadata_log.configs import effective_topic_config
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.election_rules import ElectionRules, find_rules
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.persistent import Map
from pykraft.metadata_log.records import ConfigRecord
from pykraft.metadata_log.refused_values import MOST_LINES, RefusedValues, TopicOverrides
from tests.metadata_log.controller.test_config_commands import DELETE, SET, alter
from tests.metadata_log.harness import ControllerHarness

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
GROUP, METRICS = ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS
KEYS = {TOPIC: TOPIC_KEYS, BROKER: DYNAMIC_KEYS, GROUP: GROUP_KEYS, METRICS: CLIENT_METRICS_KEYS}
NAMES = {TOPIC: "t", BROKER: "1", GROUP: "g", METRICS: "m"}


def refused_text(key: ConfigKey) -> str | None:
    """A text that the key refuses; None if it takes any."""
    texts = ("\x00neither", "-99999999999999999999999", "a:b,a:b")
    return next((text for text in texts if key.objection_to(text) is not None), None)


def with_configs(kind: int, name: str, **texts: str) -> MetadataImage:
    configs = {key.replace("_", "."): text for key, text in texts.items()}
    return MetadataImage(configs=Map({(kind, name): Map(configs)}))


# --- topics, at a broker ------------------------------------------------------------------------------------


def noted(*images: MetadataImage) -> dict[str, str]:
    """What is in force for topic t after these images."""
    overrides, old = TopicOverrides(), EMPTY_IMAGE
    for image in images:
        overrides.note(old, image, "t")
        old = image
    return dict(overrides.of(old, "t"))


def test_last_good_value_of_a_topic_is_kept_and_the_others_take_effect() -> None:
    good = with_configs(TOPIC, "t", min_insync_replicas="2", retention_ms="5")
    bad = with_configs(TOPIC, "t", min_insync_replicas="most", retention_ms="6")
    worse = with_configs(TOPIC, "t", min_insync_replicas="all", retention_ms="7")
    assert noted(good, bad) == {"min.insync.replicas": "2", "retention.ms": "6"}
    assert noted(good, bad, worse) == {"min.insync.replicas": "2", "retention.ms": "7"}
    assert noted(good, bad, good) == {"min.insync.replicas": "2", "retention.ms": "5"}
    assert noted(good, bad, EMPTY_IMAGE) == {}


def test_value_that_was_refused_from_the_start_gives_way_to_the_next_layer() -> None:
    assert noted(with_configs(TOPIC, "t", min_insync_replicas="most", segment_ms="5")) == {"segment.ms": "5"}
    assert noted(with_configs(TOPIC, "t", min_insync_replicas="most")) == {}


@pytest.mark.parametrize("name", ["cleanup.policy", "retention.ms", "retention.bytes"])
def test_nothing_is_deleted_for_want_of_a_value_that_was_refused_from_the_start(name: str) -> None:
    image = MetadataImage(configs=Map({(TOPIC, "t"): Map({name: "of another version"})}))
    in_force = effective_topic_config(noted(image), {})
    assert in_force[name] in (-1, ())
    image = MetadataImage(
        configs=Map({(BROKER, ""): Map({f"log.{name}": "of another version", "log.roll.ms": "5"})})
    )
    for broker_id in (1, None):
        wide = broker_wide_topic_configs(image, {}, broker_id)
        assert effective_topic_config({}, wide)[name] in (-1, ()) and wide["segment.ms"] == "5"
        assert broker_wide_topic_configs(image, {name: "7"}, broker_id)[name] == "7", "of the file"


def test_refused_value_of_one_broker_leaves_that_of_all_in_force() -> None:
    image = MetadataImage(
        configs=Map(
            {(BROKER, ""): Map({"log.retention.ms": "7"}), (BROKER, "1"): Map({"log.retention.ms": "soon"})}
        )
    )
    assert effective_dynamic_values(image, 1) == {"log.retention.ms": "7"}
    assert broker_wide_topic_configs(image, {}, 1) == {"retention.ms": "7"}


# --- what is said -------------------------------------------------------------------------------------------


def test_refused_values_are_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    values = RefusedValues()
    image = MetadataImage(
        configs=Map(
            {
                (TOPIC, "t"): Map({"retention.ms": "soon", "segment.ms": "5", "of.tomorrow": "1"}),
                (BROKER, ""): Map({"max.connections": "-1"}),
                (BROKER, "1"): Map({"node.id": "4"}),
                (GROUP, "g"): Map({"consumer.session.timeout.ms": "long"}),
                (METRICS, "m"): Map({"interval.ms": "often"}),
                (99, "unheard of"): Map({"a": "b"}),
            }
        )
    )
    values.note(image, image.configs.keys())
    assert [it.getMessage().partition(" is ignored: ")[0] for it in caplog.records] == [
        "The of.tomorrow that is set for topic t",
        "The retention.ms that is set for topic t",
        "The max.connections that is set for all brokers",
        "The node.id that is set for broker 1",
        "The interval.ms that is set for client metrics m",
        "The consumer.session.timeout.ms that is set for group g",
    ]
    assert values.count == 6
    values.note(image, [])
    assert len(caplog.records) == 6
    values.note(EMPTY_IMAGE, [(TOPIC, "t"), (GROUP, "g")])
    assert values.count == 3 and len(caplog.records) == 6


def test_many_refused_values_make_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    image = MetadataImage(configs=Map({(TOPIC, f"t{n}"): Map({"retention.ms": "x"}) for n in range(100)}))
    values = RefusedValues()
    values.note(image, image.configs.keys())
    assert values.count == 100 and len(caplog.records) == MOST_LINES + 1
    assert caplog.records[-1].getMessage() == "and 80 more values are ignored"


# --- the controller -----------------------------------------------------------------------------------------


def test_elections_go_by_the_next_layer() -> None:
    image = with_configs(TOPIC, "t", min_insync_replicas="most", unclean_leader_election_enable="maybe")
    assert find_rules(image, ControllerConfig(), "t") == ElectionRules(1, False, False)
    config = ControllerConfig(topic_defaults={"min.insync.replicas": "2"})
    assert find_rules(image, config, "t").min_isr == 2


def test_controller_works_on_with_every_value_refused(cluster: ControllerHarness) -> None:
    """Otherwise each active controller would end in turn."""
    cluster.start_brokers(1, 2, 3)
    for name in ("t", "u"):
        cluster.create_assigned(name, [1, 2, 3])
    refused = {
        (kind, NAMES[kind], name): text
        for kind, keys in KEYS.items()
        for name, key in keys.items()
        if (text := refused_text(key)) is not None
    }
    assert len(refused) > 60
    cluster.append(tuple(ConfigRecord(*where, text) for where, text in refused.items()))
    wide = {name: text for name, key in DYNAMIC_KEYS.items() if (text := refused_text(key)) is not None}
    cluster.append(tuple(ConfigRecord(BROKER, "", name, text) for name, text in wide.items()))
    cluster.append(tuple(ConfigRecord(99, "unheard of", name, text) for name, text in wide.items()))
    cluster.sweep()
    cluster.stop_heartbeats(3)
    assert cluster.partition("t").isr == (1, 2)
    cluster.start_brokers(3)
    cluster.create_topic("v", 3, 3)
    for kind, keys in KEYS.items():
        for name in keys:
            if (kind, NAMES[kind], name) in refused:
                answer = alter(cluster, (name, SET, "\x00neither"), resource=(kind, NAMES[kind]))
                assert answer.error_code != ErrorCode.NONE
                answer = alter(cluster, (name, DELETE, None), resource=(kind, NAMES[kind]))
                assert answer.error_code == ErrorCode.NONE, (name, answer.error_message)
    assert alter(cluster, ("retention.ms", SET, "5")).error_code == ErrorCode.NONE
