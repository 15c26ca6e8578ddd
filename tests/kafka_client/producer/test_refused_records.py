"""What is no record is refused when it is sent, and nothing else suffers; topics come and go."""

import array
from collections.abc import Iterator
from typing import Any

import pytest

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import MaybeWrittenError, NotWrittenError, ProduceError
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.producer.producer import Producer
from pykraft.kafka_client.producer.transaction import TransactionConfig
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.records import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykraft.kafka_protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from pykraft.testing import Cluster
from tests.asynchronous import in_loop
from tests.kafka_client.producer.test_producer import Leaders, running_producer
from tests.kafka_client.scripted import ScriptedCluster

__all__ = ["leaders"]

from tests.kafka_client.producer.test_producer import leaders

Given = tuple[Any, Any, Any, Any, Any, Any]

GOOD: Given = ("t", 0, b"k", b"v", [("h", b"1")], 7)
WRONG: list[tuple[int, Any, type[Exception]]] = [
    *((at, what, TypeError) for at in (2, 3) for what in ("text", 5, {"a": 1}, [b"x"], 1.5)),
    *((at, memoryview(array.array("i", [1])), TypeError) for at in (2, 3)),
    (4, [("h", "text")], TypeError),
    (4, [("h", 1)], TypeError),
    (4, [(b"h", b"1")], TypeError),
    (4, [(None, b"1")], TypeError),
    (4, [("\ud800", b"1")], ValueError),
    (5, 1.5, TypeError),
    (5, None, TypeError),
    (5, -2, ValueError),
    (5, 1 << 63, ValueError),
    (0, b"t", TypeError),
    (0, None, TypeError),
    (0, "\ud800", ValueError),
    (1, "0", TypeError),
    (1, -1, ValueError),
]


producer = in_loop(running_producer, VirtualLoop)


def wrong() -> Iterator[tuple[Given, type[Exception]]]:
    for at, what, error in WRONG:
        given = list(GOOD)
        given[at] = what
        yield tuple(given), error


async def test_what_is_no_record_is_refused_at_once_and_the_others_are_written(
    producer: Producer, leaders: Leaders
) -> None:
    """They share a batch with it, or come after it."""
    first = producer.append(*GOOD)
    for given, error in wrong():
        with pytest.raises(error):
            producer.append(*given)
        if given[0] != "t":
            with pytest.raises(error):
                await producer.partitions_for(given[0])
    assert not producer.is_full((32 << 20) - 1_000), "what was refused takes no room"
    assert (await first).offset == 0
    assert (await producer.send(*GOOD)).offset == 1
    values: list[Any] = [bytearray(b"v"), memoryview(b"v"), None, b""]
    for known in values:
        await producer.send("t", 0, known, known, [("", known)], (1 << 63) - 1)
    assert len(leaders.logs[0]) == 6
    assert [one.value for one in leaders.logs[0][2:]] == [b"v", b"v", None, b""]


UNKNOWN = 9_999
"""An error of a later version of Kafka."""


async def test_error_that_only_newer_brokers_know_is_the_outcome_of_its_record_alone(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    """Of a batch, or of the request for a producer id: the producer goes on."""
    strange = [ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE]

    def produce(broker: int, request: ProduceRequest, version: int) -> Any:
        if ApiKey.PRODUCE not in strange:
            return leaders.produce(broker, request, version)
        strange.remove(ApiKey.PRODUCE)
        (topic,) = request.topic_data
        refused = PartitionProduceResponse(index=0, error_code=UNKNOWN)
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[refused])
        return ProduceResponse(responses=[answer])

    def init(broker: int, request: InitProducerIdRequest, version: int) -> Any:
        if ApiKey.INIT_PRODUCER_ID not in strange:
            return leaders.init_producer_id(broker, request, version)
        strange.remove(ApiKey.INIT_PRODUCER_ID)
        return InitProducerIdResponse(error_code=UNKNOWN)

    scripted.script(ApiKey.PRODUCE, produce)
    scripted.script(ApiKey.INIT_PRODUCER_ID, init)
    for kind in (NotWrittenError, MaybeWrittenError):
        with pytest.raises(kind) as refused:
            await producer.send(*GOOD)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await producer.send(*GOOD)).offset == 0


@pytest.fixture(scope="module")
def kraft() -> Iterator[Cluster]:
    with Cluster(properties={"auto.create.topics.enable": "false"}) as cluster:
        yield cluster


def client(kraft: Cluster) -> ClientConfig:
    return ClientConfig(parse_bootstrap_servers(kraft.bootstrap_servers), unknown_topic_grace_ms=0)


@pytest.mark.parametrize("transaction", [None, TransactionConfig("refused")])
def test_what_is_no_record_is_refused_on_the_thread_of_its_sender(
    kraft: Cluster, transaction: TransactionConfig | None
) -> None:
    topic = kraft.create_topic("plain" if transaction is None else "transactional")
    good = (topic, *GOOD[1:])
    with BlockingProducer(client(kraft), ProducerConfig(linger_ms=50), transaction) as producer:
        if transaction is not None:
            producer.init_transactions()
            producer.begin_transaction()
        sent = [producer.send(*good)]
        for given, error in wrong():
            with pytest.raises(error):
                producer.send(*(topic, *given[1:]) if given[0] == "t" else given)
        sent.append(producer.send(topic, None, b"k", b"v"))
        if transaction is not None:
            producer.commit_transaction()
        assert [one.result().offset for one in sent] == [0, 1]


def test_topic_that_was_deleted_is_waited_for_and_written_to_when_it_is_there_again(kraft: Cluster) -> None:
    topic = kraft.create_topic("comes-and-goes")
    config = ProducerConfig(linger_ms=0, delivery_timeout_ms=1_000, max_block_ms=300)
    with BlockingProducer(client(kraft), config) as producer:
        assert producer.send(topic, None, None, b"1").result().offset == 0
        with kraft.admin() as admin:
            admin.delete_topics([topic])[0].check()
        with pytest.raises(ProduceError):
            producer.send(topic, None, None, b"2").result()
        with pytest.raises(NotWrittenError, match=r"not known within 300 ms \(max\.block\.ms\)") as refused:
            producer.send(topic, None, None, b"3")
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        kraft.create_topic(topic, partitions=2)
        assert producer.partitions_for(topic) == 2
        assert producer.send(topic, None, None, b"4").result().offset == 0
