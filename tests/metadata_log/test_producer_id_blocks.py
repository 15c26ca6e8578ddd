from __future__ import annotations

from typing import Any

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.requests import AllocateProducerIdsRequest


def test_blocks_are_consecutive_whichever_broker_asks(cluster: Any) -> None:
    blocks = []
    for broker_id in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id, cluster.image.brokers[broker_id].epoch)
        blocks.append(cluster.run(cluster.core.handle_allocate_producer_ids(request)))
    assert [(block.start, block.length) for block in blocks] == [(0, 1000), (1000, 1000), (2000, 1000)]


def test_older_incarnation_gets_no_block(cluster: Any) -> None:
    with pytest.raises(KafkaError) as error:
        cluster.core.handle_allocate_producer_ids(AllocateProducerIdsRequest(1, 0))
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH
