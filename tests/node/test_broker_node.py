"""The broker of a node, before it has joined a cluster."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from pykraft.broker.serving.listener import ListenerLimits
from pykraft.configuration.keys import ConfigError
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.records import ConfigRecord, TopicRecord
from pykraft.node.broker_node import BrokerNode
from pykraft.node.client_listeners import ClientListeners
from pykraft.node.format import check_directories
from pykraft.node.run import make_world
from pykraft.quorum.driver import QuorumNode
from pykraft.quorum.listener import CommittedBatch
from tests.metadata_log.test_refused_values import GROUP, KEYS, NAMES, refused_text
from tests.node.test_node_start import make_config


@dataclass
class Quorum:
    """As much of a quorum's node as a broker needs."""

    high_watermark: int
    delivered_offset: int = 0

    def leader_address(self) -> None:
        return None


def make_broker(directory: Path, quorum: Quorum) -> tuple[BrokerNode, ClientListeners]:
    config = make_config(directory)
    world = make_world(config, lambda error: None)
    identity = check_directories(world.disk, config)
    listeners = ClientListeners(config, config.broker_listeners, world.streams)
    return BrokerNode(
        config, identity, world, cast(Any, None), cast(QuorumNode, quorum), listeners, ()
    ), listeners


async def test_broker_reports_no_more_than_the_image_that_it_has_applied(tmp_path: Path) -> None:
    """Otherwise it would count as caught up, and set aside the logs of topics that it does not know yet."""
    quorum = Quorum(high_watermark=2)
    broker, _ = make_broker(tmp_path, quorum)
    loader = MetadataLoader(broker.publishers, high_watermark=lambda: quorum.high_watermark)

    def deliver(offset: int) -> None:
        record = TopicRecord(f"t{offset}", Uuid(bytes([offset + 1]) * 16))
        loader.handle_commit([CommittedBatch(offset, offset, 1, 0, (encode_record(record),))])
        quorum.delivered_offset = offset + 1

    assert broker.applied_offset() == -1
    deliver(0)
    assert broker.metadata.image.topic("t0") is None
    assert broker.applied_offset() == -1
    deliver(1)
    assert broker.metadata.image.topic("t0") is not None
    assert broker.applied_offset() == 1
    quorum.delivered_offset = 3  # a no-op record
    assert broker.applied_offset() == 2
    await broker.stop()


async def test_dynamic_value_that_this_version_refuses_is_ignored_and_the_others_take_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A controller of another version accepted it. What is in the log must not end a broker."""
    with caplog.at_level("WARNING", "pykraft.metadata_log.refused_values"):
        quorum = Quorum(high_watermark=1)
        broker, listeners = make_broker(tmp_path, quorum)
        limits: list[ListenerLimits] = []
        monkeypatch.setattr(listeners, "limit_connections", limits.append)
        loader = MetadataLoader(broker.publishers, high_watermark=lambda: quorum.high_watermark)
        broker._followers.begin()
        records = [
            ConfigRecord(ConfigResourceType.BROKER, resource, name, value)
            for resource, name, value in (
                ("", "max.connections", "7"),
                ("1", "max.connections", "-1"),
                ("", "max.connections.per.ip", "5"),
                ("", "log.retention.ms", "soon"),
                ("", "log.segment.bytes", "2000000"),
                ("1", "node.id", "4"),
            )
        ]
        batch = CommittedBatch(0, len(records) - 1, 1, 0, tuple(map(encode_record, records)))
        loader.handle_commit([batch])
        assert (limits[-1].max_connections, limits[-1].max_connections_per_ip) == (7, 5)
        assert broker.data.publisher._topic_defaults["segment.bytes"] == "2000000"
        assert broker.data.publisher._topic_defaults["retention.ms"] == "-1", "it may have been set to keep"
        assert [record.getMessage().split(" is ignored")[0] for record in caplog.records] == [
            "The log.retention.ms that is set for all brokers",
            "The max.connections that is set for broker 1",
            "The node.id that is set for broker 1",
        ]
        assert broker.refused_values.count == 3
        await broker.stop()


async def test_broker_works_on_with_every_value_of_every_resource_refused(tmp_path: Path) -> None:
    """Otherwise an upgrade could end every broker, again at each start."""
    broker, _ = make_broker(tmp_path, Quorum(high_watermark=2))
    loader = MetadataLoader(broker.publishers, high_watermark=lambda: 2)
    broker._followers.begin()
    records = [
        ConfigRecord(kind, resource, name, text)
        for kind, keys in KEYS.items()
        for resource in (NAMES[kind], *(("",) if kind == ConfigResourceType.BROKER else ()))
        for name, key in keys.items()
        if (text := refused_text(key)) is not None
    ]
    batch = CommittedBatch(0, len(records) - 1, 1, 0, tuple(map(encode_record, records)))
    loader.handle_commit([batch])
    assert broker.refused_values.count == len(records) > 100
    log_config = broker.data.publisher.log_config("t")
    assert (log_config.retention_ms, log_config.cleanup_policy) == (-1, frozenset())
    assert broker.data.publisher.log_config("other").retention_ms == -1
    assert (
        broker.groups.config.with_group_overrides(
            {record.name: record.value or "" for record in records if record.resource_type == GROUP}
        )
        == broker.groups.config
    )
    await broker.stop()


async def test_settings_that_contradict_each_other_leave_those_of_before_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "pykraft.node.broker_node"):
        broker, listeners = make_broker(tmp_path, Quorum(high_watermark=1))
        limits: list[ListenerLimits] = []
        monkeypatch.setattr(listeners, "limit_connections", limits.append)
        loader = MetadataLoader(broker.publishers, high_watermark=lambda: 1)
        before = broker.groups.config
        offset = 0

        def set_value(name: str, value: str) -> None:
            nonlocal offset
            record = ConfigRecord(ConfigResourceType.BROKER, "", name, value)
            loader.handle_commit([CommittedBatch(offset, offset, 1, 0, (encode_record(record),))])
            offset += 1

        def refuse(self: GroupConfig) -> None:
            raise ConfigError("this contradicts that")

        with monkeypatch.context() as newer:
            newer.setattr(GroupConfig, "__post_init__", refuse)
            set_value("group.consumer.assignment.interval.ms", "7")
            assert broker.groups.config is before and limits, "the other settings are applied"
            said = (
                "The settings that are in force stay, since the new ones are refused: this contradicts that"
            )
            assert [it.getMessage() for it in caplog.records] == [said]
        set_value("max.connections", "9")
        assert broker.groups.config.consumer_assignment_interval_ms == 7
        assert limits[-1].max_connections == 9
        await broker.stop()
