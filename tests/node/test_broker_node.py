"""The broker of a node, before it has joined a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.records import TopicRecord
from pykraft.node.broker_node import BrokerNode
from pykraft.node.client_listeners import ClientListeners
from pykraft.node.format import check_directories
from pykraft.node.run import make_world
from pykraft.quorum.listener import CommittedBatch
from tests.node.test_node_start import make_config


def test_broker_reports_no_more_than_the_image_that_it_has_applied(tmp_path: Path) -> None:
    """Otherwise it would count as caught up, and set aside the logs of topics that it does not know yet."""

    async def body() -> None:
        config = make_config(tmp_path)
        world = make_world(config, lambda error: None)
        identity = check_directories(world.disk, config)
        quorum: Any = SimpleNamespace(leader_address=lambda: None, delivered_offset=0, high_watermark=2)
        transport: Any = SimpleNamespace()
        listeners = ClientListeners(config, config.broker_listeners, world.streams)
        broker = BrokerNode(config, identity, world, transport, quorum, listeners, ())
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

    asyncio.run(body())
