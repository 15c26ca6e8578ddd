"""Records without a partition: keys go where Java's producer sends them, others fill batches."""

import asyncio
import itertools
import random

import pytest

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import NotWrittenError
from pykraft.kafka_client.metadata import Partition, Topic
from pykraft.kafka_client.producer.partitioner import Partitioner, murmur2, partition_of_key
from pykraft.kafka_client.producer.producer import Producer, ProducerConfig
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.transaction_coordinator.transaction import TransactionVersion
from tests.kafka_client.producer.test_producer import Leaders
from tests.kafka_client.scripted import ScriptedCluster
from tests.kafka_client.transaction_world import TransactionWorld
from tests.kafka_client.virtual_cluster import network_of, run_virtual

# Printed by org.apache.kafka.common.utils.Utils.murmur2 of Apache Kafka 4.3.0.
JAVA = [
    (b"", 275646681),
    (b"a", -1563381124),
    (b"ab", 316155434),
    (b"abc", 479470107),
    (b"abcd", -1323649548),
    (b"abcde", 461995741),
    (b"abcdef", 1870650108),
    (b"abcdefg", -346467175),
    (b"abcdefgh", -955427363),
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (bytes(range(256)), -1948347274),
    (bytes([255] * 7), -71293549),
]


@pytest.mark.parametrize(("key", "expected"), JAVA)
def test_keys_are_hashed_as_by_java(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32
    assert partition_of_key(key, 7) == (expected & 0x7FFFFFFF) % 7


def a_topic(leaders: dict[int, int | None]) -> Topic:
    topic_id = Uuid(bytes(16))
    partitions = {
        index: Partition("t", topic_id, index, leader, 0, (1,), (1,), (), ErrorCode.NONE)
        for index, leader in leaders.items()
    }
    return Topic("t", topic_id, False, partitions)


def test_records_without_key_stay_until_a_batch_is_full_and_go_to_another_with_a_leader() -> None:
    topic = a_topic({0: 1, 1: None, 2: 1, 3: 1})
    partitioner = Partitioner(1_000, random.Random(1).randrange)
    chosen = [partitioner.choose(topic, None, 250) for _ in range(4_000)]
    runs = [chosen[at : at + 4] for at in range(0, len(chosen), 4)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(one[0] != other[0] for one, other in itertools.pairwise(runs))
    shares = [sum(run[0] == index for run in runs) / len(runs) for index in range(4)]
    assert shares[1] == 0 and all(abs(shares[index] - 1 / 3) < 0.05 for index in (0, 2, 3))


def test_without_randomness_partitions_take_turns() -> None:
    partitioner = Partitioner(100)
    topic = a_topic({0: 1, 1: 1, 2: 1})
    assert [partitioner.choose(topic, None, 100) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert partitioner.choose(a_topic({0: 1}), None, 100) == 0


def test_a_topic_without_leaders_is_written_to_when_it_has_some() -> None:
    assert Partitioner(100).choose(a_topic({0: None, 1: None}), None, 10) == 0


@pytest.fixture
def leaders(scripted: ScriptedCluster) -> Leaders:
    scripted.add_topic("t", {0: (1, 0), 1: (2, 0), 2: (1, 0)})
    return Leaders(scripted)


def producer_of(scripted: ScriptedCluster, max_block_ms: int = 60_000) -> Producer:
    addresses = tuple(broker.address for broker in scripted.brokers.values())
    config = ProducerConfig(max_block_ms=max_block_ms)
    return Producer(network_of(scripted), ClientConfig(addresses), config, pick=random.Random(1).randrange)


def test_send_asks_for_the_partitions_of_the_topic_and_append_does_not(
    scripted: ScriptedCluster, leaders: Leaders
) -> None:
    async def body() -> None:
        producer = producer_of(scripted)
        with pytest.raises(NotWrittenError, match="partitions_for"):
            producer.append("t", None, b"k", b"v")
        sent = await producer.send("t", None, b"abc", b"v")
        assert sent.partition == (479470107 & 0x7FFFFFFF) % 3
        assert await producer.partitions_for("t") == 3
        assert (await producer.append("t", None, b"abc", b"w")).offset == 1
        assert (await producer.append("t", 2, b"abc", b"w")).partition == 2
        await producer.close()

    run_virtual(body())


def test_a_topic_that_is_created_while_send_waits_is_written_to(
    scripted: ScriptedCluster, leaders: Leaders
) -> None:
    async def body() -> int:
        producer = producer_of(scripted)
        sends = [asyncio.ensure_future(producer.send("new", None, b"k", b"v")) for _ in range(3)]
        await asyncio.sleep(10)
        assert not any(send.done() for send in sends)
        asked = sum(len(broker.seen) for broker in scripted.brokers.values())
        scripted.topic_ids["new"] = Uuid(b"t".ljust(16, b"\2"))
        scripted.leaders["new"] = scripted.leaders["t"]
        await asyncio.sleep(2)
        assert [len(producer._cluster.metadata.topic("new").partitions)] == [3]  # type: ignore[union-attr]
        await producer.close()
        await asyncio.gather(*sends, return_exceptions=True)
        return asked

    assert run_virtual(body()) < 60  # pauses grow


def test_a_topic_that_stays_unknown_is_refused_after_max_block_ms(
    scripted: ScriptedCluster, leaders: Leaders
) -> None:
    async def body() -> float:
        producer = producer_of(scripted, max_block_ms=3_000)
        with pytest.raises(NotWrittenError, match=r"topic new .* 3000 ms \(max.block.ms\)") as refused:
            await producer.send("new", None, b"k", b"v")
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        took_s = asyncio.get_running_loop().time()
        await producer.close()
        return took_s

    assert 3 <= run_virtual(body()) < 3.1


def test_close_ends_a_wait_for_partitions(scripted: ScriptedCluster, leaders: Leaders) -> None:
    async def body() -> None:
        producer = producer_of(scripted)
        send = asyncio.ensure_future(producer.send("new", None, b"k", b"v"))
        await asyncio.sleep(1)
        await producer.close()
        with pytest.raises(NotWrittenError, match="closed"):
            await asyncio.wait_for(send, 1)

    run_virtual(body())


@pytest.mark.parametrize("rules", [TransactionVersion.TV_0, TransactionVersion.TV_2])
async def test_the_partition_that_was_chosen_takes_part_in_the_transaction(world: TransactionWorld) -> None:
    producer = world.producer(config=ProducerConfig(linger_ms=0, batch_size_bytes=100))
    await producer.init_transactions()
    with pytest.raises(RuntimeError):
        await producer.send("t", None, b"abc", b"v")
    await producer.begin_transaction()
    await producer.send("t", None, b"abc", b"key")
    for _ in range(6):
        await producer.send("t", None, None, b"none" * 10)
    await producer.commit_transaction()
    await producer.close()
    await world.settled()
    assert "key" in world.committed("t", 479470107 % 2)
    assert len(world.committed("t", 0)) + len(world.committed("t", 1)) == 7
    assert world.committed("t", 0) and world.committed("t", 1)
