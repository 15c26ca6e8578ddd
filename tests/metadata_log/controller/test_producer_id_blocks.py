import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.calls.requests import AllocateProducerIdsRequest
from tests.metadata_log.harness import ControllerHarness


def test_blocks_are_consecutive_whichever_broker_asks(cluster: ControllerHarness) -> None:
    blocks = []
    for broker_id in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id, cluster.image.brokers[broker_id].epoch)
        blocks.append(cluster.run(cluster.core.handle_allocate_producer_ids(request)))
    assert [(block.start, block.length) for block in blocks] == [(0, 1000), (1000, 1000), (2000, 1000)]


def test_older_incarnation_gets_no_block(cluster: ControllerHarness) -> None:
    with pytest.raises(KafkaError) as error:
        cluster.core.handle_allocate_producer_ids(AllocateProducerIdsRequest(1, 0))
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH
