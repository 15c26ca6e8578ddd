"""The cache: topics by id, leaders by epoch."""

from pykraft.kafka_client.metadata import Broker, MetadataCache
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykraft.runtime.address import Address
from tests.narrowing import present

FIRST_ID, SECOND_ID = Uuid(b"1" * 16), Uuid(b"2" * 16)


def answer(
    leader: int, epoch: int, topic_id: Uuid = FIRST_ID, name: str = "t", error: int = 0
) -> MetadataResponse:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    topic = MetadataResponseTopic(name=name, topic_id=topic_id, partitions=[partition], error_code=error)
    brokers = [MetadataResponseBroker(node_id=n, host="h", port=n) for n in (1, 2, 3)]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=[topic])


def leader_of(cache: MetadataCache) -> tuple[int | None, int | None]:
    partition = present(cache.partition("t", 0))
    return partition.leader_id, partition.leader_epoch


def test_answer_with_an_older_epoch_does_not_move_the_leader_back() -> None:
    cache = MetadataCache()
    cache.replay(answer(leader=2, epoch=5))
    cache.replay(answer(leader=1, epoch=4))
    assert leader_of(cache) == (2, 5)


def test_answer_with_the_same_epoch_is_accepted() -> None:
    cache = MetadataCache()
    cache.replay(answer(leader=-1, epoch=5))
    cache.replay(answer(leader=2, epoch=5))
    assert leader_of(cache) == (2, 5)


def test_recreated_topic_does_not_inherit_epochs() -> None:
    cache = MetadataCache()
    cache.replay(answer(leader=2, epoch=5))
    cache.replay(answer(leader=1, epoch=0, topic_id=SECOND_ID))
    assert leader_of(cache) == (1, 0)
    assert present(cache.topic("t")).topic_id == SECOND_ID


def test_topic_in_error_is_dropped_and_its_error_kept() -> None:
    cache = MetadataCache()
    cache.replay(answer(leader=2, epoch=5))
    cache.replay(answer(leader=2, epoch=5, error=3))
    assert cache.topic("t") is None
    assert cache.errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_only_a_complete_answer_drops_topics() -> None:
    cache = MetadataCache()
    cache.replay(answer(leader=2, epoch=5))
    cache.replay(answer(leader=2, epoch=5, name="other"))
    assert cache.topic("t") is not None
    cache.replay(answer(leader=2, epoch=5, name="other"), complete=True)
    assert cache.topic("t") is None


def test_leader_hint_with_a_newer_epoch_is_used_and_its_broker_added() -> None:
    cache = MetadataCache()
    cache.replay(answer(leader=2, epoch=5))
    assert cache.replay_leader("t", 0, 9, 6, [Broker(9, Address("new", 9))])
    assert leader_of(cache) == (9, 6)
    assert cache.brokers[9].address == Address("new", 9)


def test_stale_or_useless_leader_hint_is_ignored() -> None:
    cache = MetadataCache()
    cache.replay(answer(leader=2, epoch=5))
    assert not cache.replay_leader("t", 0, 1, 5)
    assert not cache.replay_leader("t", 0, -1, 7)
    assert not cache.replay_leader("t", 0, 8, 7), "its address is unknown"
    assert not cache.replay_leader("other", 0, 1, 7)
    assert leader_of(cache) == (2, 5)
