"""Transactions as clients and coordinators meet them: Produce, Fetch, ListOffsets, WriteTxnMarkers,
DescribeProducers.

It is long because each API is asked in every state of the same transactions.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from pykraft.broker.apis.coordination import describe_producers, write_txn_markers
from pykraft.broker.apis.records import list_offsets
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.peers.identity import is_broker, peer_client_id
from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import EndOfTransaction
from pykraft.kafka_protocol.messages import records
from pykraft.kafka_protocol.messages.records import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykraft.kafka_protocol.messages.transactions import (
    DescribeProducersRequest,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.tasks import TaskSupervisor
from tests.broker.answers import as_read
from tests.broker.data_cluster import DataClient, DataCluster, make_batch, running_cluster, values_in
from tests.unexpected import unexpected
from tests.waits import until

PRODUCER, OTHER = 7, 8
TIME_MS = 1_700_000_000_000


class Coordinator:
    """Answers verifications with ``errors``, one for each question, then with none; it waits for ``gate``."""

    def __init__(self, *errors: ErrorCode) -> None:
        self.errors = list(errors)
        self.asked: list[tuple[str, int, int, tuple[TopicPartition, ...], bool]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, KafkaError]:
        self.asked.append((transactional_id, producer_id, producer_epoch, tuple(partitions), adds))
        code = self.errors.pop(0) if self.errors else None
        await self.gate.wait()
        return {} if code is None else dict.fromkeys(partitions, KafkaError(code, "no"))


def use(cluster: DataCluster, coordinator: Coordinator, node_id: int = 1) -> Coordinator:
    object.__setattr__(cluster.brokers[node_id].services, "verifier", coordinator)
    return coordinator


def in_transaction(sequence: int, *, producer: int = PRODUCER, epoch: int = 0, value: bytes = b"t") -> bytes:
    return make_batch(
        value,
        timestamp_ms=TIME_MS,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def send(
    client: DataClient,
    *batches: bytes,
    version: int = 11,
    transactional_id: str | None = "tx",
    acks: int = -1,
) -> None:
    """Batches for partition 0 of ``t``, and of ``u`` and so on."""
    request = records.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            records.TopicProduceData(
                name=name, partition_data=[records.PartitionProduceData(index=0, records=batch)]
            )
            for name, batch in zip("tu", batches, strict=False)
        ],
    )
    client.send(request, version)


async def sent(client: DataClient, *batches: bytes, **options: Any) -> list[ErrorCode]:
    send(client, *batches, **options)
    response = await client.receive()
    return [ErrorCode(topic.partition_responses[0].error_code) for topic in response.responses]


def coordinator_of(cluster: DataCluster) -> RequestContext:
    """Broker 1, as other brokers know it."""
    broker = cluster.controller.image.brokers[1]
    return RequestContext(client_id=peer_client_id(1, broker.incarnation_id))


async def end(
    cluster: DataCluster,
    *,
    commit: bool = True,
    producer: int = PRODUCER,
    epoch: int = 0,
    node_id: int = 1,
    topic: str = "t",
    index: int = 0,
    version: int = 0,
    coordinator_epoch: int = 3,
    client_id: str | None = None,
) -> ErrorCode:
    """What a coordinator, or the client with this id, is told of its marker."""
    services = cluster.brokers[node_id].services
    marker = WritableTxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )
    context = coordinator_of(cluster) if client_id is None else RequestContext(client_id=client_id)
    response = await write_txn_markers.handle(services, context, WriteTxnMarkersRequest(markers=[marker]), 2)
    (result,) = response.markers
    assert (result.producer_id, result.topics[0].name) == (producer, topic)
    return ErrorCode(result.topics[0].partitions[0].error_code)


def fetch_committed(
    offset: int, *, session: tuple[int, int] = (0, -1), **options: Any
) -> records.FetchRequest:
    partition = records.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [records.FetchTopic(topic="t", partitions=[partition])]
    if options.pop("names_nothing", False) and session[1] > 0:
        topics = []
    settings = {"max_wait_ms": 0, "min_bytes": 1, "isolation_level": 1} | options
    return records.FetchRequest(topics=topics, session_id=session[0], session_epoch=session[1], **settings)


async def read(client: DataClient, offset: int, **options: Any) -> records.PartitionData:
    client.send(fetch_committed(offset, **options), 12)
    response = await client.receive()
    result: records.PartitionData = response.responses[0].partitions[0]
    return result


# -- Produce ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [9, 11, 12])
async def test_transaction_is_verified_once_and_ended_by_its_marker(
    cluster: DataCluster, version: int
) -> None:
    await cluster.create(1)
    coordinator = use(cluster, Coordinator())
    client = await cluster.client(1)
    for sequence in range(3):
        assert await sent(client, in_transaction(sequence), version=version) == [ErrorCode.NONE]
    assert coordinator.asked == [("tx", PRODUCER, 0, (("t", 0),), version >= 12)]
    assert (await read(client, 0)).records == b""
    assert await end(cluster) is ErrorCode.NONE
    found = await read(client, 0)
    assert values_in(found.records)[:3] == [b"t"] * 3
    assert (found.high_watermark, found.last_stable_offset) == (4, 4)
    assert await sent(client, in_transaction(3), version=version) == [ErrorCode.NONE]
    assert len(coordinator.asked) == 2


@pytest.mark.parametrize(
    ("answer", "old", "generic", "adding"),
    [
        (ErrorCode.PRODUCER_FENCED, *[ErrorCode.INVALID_PRODUCER_EPOCH] * 3),
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.INVALID_TXN_STATE,
            *[ErrorCode.TRANSACTION_ABORTABLE] * 2,
        ),
        (ErrorCode.NETWORK_EXCEPTION, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 3),
        (ErrorCode.NOT_COORDINATOR, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 3),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, *[ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, *[ErrorCode.INVALID_TXN_STATE] * 3),
        (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            *[ErrorCode.NOT_ENOUGH_REPLICAS] * 2,
            ErrorCode.NONE,  # asked again, and the last transaction is over by then
        ),
    ],
)
async def test_refusal_of_the_coordinator_is_told_as_the_producer_knows_it(
    cluster: DataCluster, answer: ErrorCode, old: ErrorCode, generic: ErrorCode, adding: ErrorCode
) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    for version, expected in ((10, old), (11, generic), (12, adding)):
        coordinator = use(cluster, Coordinator(answer))
        assert await sent(client, in_transaction(0), version=version) == [expected]
        assert len(coordinator.asked) == 1 + (expected is ErrorCode.NONE)
    assert cluster.partition(1).log.log_end_offset == (adding is ErrorCode.NONE)


async def test_adding_a_partition_is_tried_soon_then_seldom_and_ends_with_its_time(
    cluster: DataCluster,
) -> None:
    pauses_ms: list[int] = []
    await cluster.create(1)
    use(cluster, Coordinator(*[ErrorCode.CONCURRENT_TRANSACTIONS] * 100))

    class Noted(TaskSupervisor):
        async def sleep(self, duration_ms: int) -> None:
            pauses_ms.append(duration_ms)
            await super().sleep(duration_ms)

    object.__setattr__(cluster.brokers[1].services, "tasks", Noted(unexpected))
    client = await cluster.client(1)
    assert await sent(client, in_transaction(0), version=12) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    asked_ms = [pause_ms for pause_ms in pauses_ms if pause_ms <= 20]
    assert asked_ms[:7] == [1, 2, 4, 8, 16, 20, 20][: len(asked_ms)]
    assert asked_ms
    assert sum(asked_ms) <= 120


async def test_request_with_a_transaction_is_refused_as_a_whole(cluster: DataCluster) -> None:
    for name in "tu":
        await cluster.create(1, topic=name)
    coordinator = use(cluster, Coordinator())
    client = await cluster.client(1)
    plain = make_batch(b"v")
    assert (
        await sent(client, plain, in_transaction(0), transactional_id=None)
        == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    )
    two = [in_transaction(0), in_transaction(0, producer=OTHER)]
    assert await sent(client, *two) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    nobody = make_batch(b"v", is_transactional=True)
    assert await sent(client, nobody) == [ErrorCode.INVALID_RECORD]
    assert cluster.partition(1).log.log_end_offset == 0 and not coordinator.asked


async def test_only_the_partitions_that_are_not_in_the_transaction_are_asked_about(
    cluster: DataCluster,
) -> None:
    for name in "tu":
        await cluster.create(1, topic=name)
    coordinator = use(cluster, Coordinator())
    client = await cluster.client(1)
    assert await sent(client, in_transaction(0)) == [ErrorCode.NONE]
    both = (in_transaction(1), in_transaction(0))
    assert await sent(client, *both) == [ErrorCode.NONE] * 2
    assert [partitions for _, _, _, partitions, _ in coordinator.asked] == [(("t", 0),), (("u", 0),)]


async def test_marker_during_the_verification_makes_it_void(cluster: DataCluster) -> None:
    await cluster.create(1)
    coordinator = use(cluster, Coordinator())
    coordinator.gate.clear()
    client = await cluster.client(1)
    send(client, in_transaction(0))
    await until(lambda: coordinator.asked)
    assert await end(cluster, commit=False) is ErrorCode.NONE
    coordinator.gate.set()
    (topic,) = (await client.receive()).responses
    assert topic.partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert cluster.partition(1).last_stable_offset == cluster.partition(1).log.log_end_offset == 1


async def test_later_requests_of_a_producer_wait_for_the_verification(cluster: DataCluster) -> None:
    await cluster.create(1)
    coordinator = use(cluster, Coordinator())
    coordinator.gate.clear()
    client = await cluster.client(1)
    for sequence in range(3):
        send(client, in_transaction(sequence, value=b"%d" % sequence))
    await until(lambda: coordinator.asked)
    coordinator.gate.set()
    for _ in range(3):
        (topic,) = (await client.receive()).responses
        assert topic.partition_responses[0].error_code == ErrorCode.NONE
    assert len(coordinator.asked) == 1
    assert cluster.partition(1).log.log_end_offset == 3


async def test_verification_can_be_switched_off_for_producers_that_add_their_partitions(
    cluster: DataCluster,
) -> None:
    await cluster.create(1)
    coordinator = use(cluster, Coordinator())
    cluster.controller.set_configs(4, "", {"transaction.partition.verification.enable": "false"})
    client = await cluster.client(1)
    assert await sent(client, in_transaction(0)) == [ErrorCode.NONE]
    assert not coordinator.asked
    await end(cluster)
    assert await sent(client, in_transaction(1), version=12) == [ErrorCode.NONE]
    assert len(coordinator.asked) == 1


# -- Fetch, ListOffsets ----------------------------------------------------------------------------------


async def test_reader_is_told_what_was_aborted(cluster: DataCluster) -> None:
    await cluster.create(1)
    use(cluster, Coordinator())
    client = await cluster.client(1)
    await sent(client, in_transaction(0, value=b"aborted"))
    await client.produce(make_batch(b"plain"))
    await end(cluster, commit=False)
    found = await read(client, 0)
    assert found.aborted_transactions is not None
    assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions] == [(PRODUCER, 0)]
    everything = await read(client, 0, isolation_level=0)
    assert everything.aborted_transactions is None
    assert bytes(everything.records or b"") == bytes(found.records or b"")
    assert (await read(client, 3)).aborted_transactions == []


@pytest.mark.parametrize("in_session", [False, True])
async def test_long_poll_ends_when_a_transaction_does(cluster: DataCluster, in_session: bool) -> None:
    await cluster.create(1)
    use(cluster, Coordinator())
    producer, consumer = await cluster.client(1), await cluster.client(1)
    await sent(producer, in_transaction(0))
    session = (0, -1)
    if in_session:
        consumer.send(fetch_committed(0, session=(0, 0)), 12)
        session = ((await consumer.receive()).session_id, 1)
    request = fetch_committed(0, session=session, names_nothing=True, max_wait_ms=600_000, min_bytes=100)
    consumer.send(request, 12)
    await until(lambda: cluster.brokers[1].data.wakeups.deadlines)
    await producer.produce(make_batch(b"more"))  # the high watermark moves, and nothing else
    await end(cluster, producer=OTHER)
    assert cluster.brokers[1].data.wakeups.deadlines
    async with asyncio.timeout(10):
        await end(cluster)
        response = await consumer.receive()
    values = values_in(response.responses[0].partitions[0].records)
    assert values[:2] == [b"t", b"more"]


async def test_session_may_change_its_isolation_level(cluster: DataCluster) -> None:
    await cluster.create(1)
    use(cluster, Coordinator())
    producer, consumer = await cluster.client(1), await cluster.client(1)
    await sent(producer, in_transaction(0))
    consumer.send(fetch_committed(0, session=(0, 0)), 12)
    opened = await consumer.receive()
    assert opened.responses[0].partitions[0].records == b""
    next_request = fetch_committed(0, session=(opened.session_id, 1), names_nothing=True, isolation_level=0)
    consumer.send(next_request, 12)
    found = await consumer.fetched()
    assert values_in(found.records) == [b"t"]


async def test_offsets_are_listed_by_isolation_level(cluster: DataCluster) -> None:
    await cluster.create(1)
    use(cluster, Coordinator())
    client = await cluster.client(1)
    await client.produce(make_batch(b"v", timestamp_ms=TIME_MS - 5))
    await sent(client, in_transaction(0))

    async def offset(timestamp: int, isolation_level: int) -> int:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name="t", partitions=[asked])],
        )
        services = cluster.brokers[1].services
        response = as_read(await list_offsets.handle(services, RequestContext(), request, 8), 8)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        return response.topics[0].partitions[0].offset

    times = (-1, TIME_MS, -3, TIME_MS - 9)
    assert [await offset(time, 0) for time in times] == [2, 1, 1, 0]
    assert [await offset(time, 1) for time in times] == [1, -1, -1, 0]
    await end(cluster)
    assert [await offset(time, 1) for time in times][:2] == [3, 1]


@pytest.mark.world(brokers=(1, 2))
async def test_follower_serves_readers_of_committed_transactions(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    use(cluster, Coordinator())
    client, reader = await cluster.client(1), await cluster.client(2)
    await sent(client, in_transaction(0))
    await client.produce(make_batch(b"plain"))
    follower = cluster.partition(2)
    await until(lambda: follower.high_watermark == 2)
    assert follower.last_stable_offset == 0
    assert (await read(reader, 0)).records == b""
    assert await end(cluster, commit=False) is ErrorCode.NONE
    await client.produce(make_batch(b"next"))
    await until(lambda: follower.last_stable_offset >= 3)
    found = await read(reader, 0)
    assert found.aborted_transactions is not None
    assert [one.first_offset for one in found.aborted_transactions] == [0]


# -- markers ---------------------------------------------------------------------------------------------


@pytest.mark.world(brokers=(1, 2))
async def test_marker_is_answered_when_it_is_committed(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    leader = cluster.partition(1)
    assert await end(cluster) is ErrorCode.NONE
    assert leader.high_watermark == leader.log.log_end_offset == 1
    await cluster.brokers[2].stop()
    waiting = asyncio.ensure_future(end(cluster))
    await until(lambda: leader.log.log_end_offset == 2)
    assert not waiting.done() and leader.high_watermark == 1
    cluster.controller.elect(2)
    assert await waiting is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.world(brokers=(1, 2))
async def test_markers_for_partitions_that_are_not_led_here_are_refused(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    assert await end(cluster, topic="nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await end(cluster, index=4) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await end(cluster, node_id=2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.brokers[1].lease.is_fenced = True
    assert await end(cluster) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.partition(1).log.log_end_offset == 0


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (None, ErrorCode.NONE),
    ],
)
async def test_markers_of_groups_go_to_the_group_coordinator(
    cluster: DataCluster, code: ErrorCode | None, expected: ErrorCode
) -> None:
    ended: list[tuple[int, EndOfTransaction]] = []

    class Groups:
        async def end_transaction(self, partition: int, end: EndOfTransaction) -> None:
            ended.append((partition, end))
            if code is not None:
                raise KafkaError(code, "not now")

    await cluster.create(1)
    object.__setattr__(cluster.brokers[1].services, "offsets_transactions", Groups())
    assert await end(cluster, topic=OFFSETS_TOPIC, index=9) is expected
    assert [(partition, one.producer_id) for partition, one in ended] == [(9, PRODUCER)]


async def test_marker_that_meets_a_bug_costs_no_other_and_not_the_node(
    cluster: DataCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Groups:
        async def end_transaction(self, partition: int, end: EndOfTransaction) -> None:
            raise ValueError("a bug")

    await cluster.create(1)
    services = cluster.brokers[1].services
    object.__setattr__(services, "offsets_transactions", Groups())
    names = [(OFFSETS_TOPIC, [3]), ("t", [0])]
    topics = [WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in names]
    marker = WritableTxnMarker(producer_id=PRODUCER, producer_epoch=0, topics=topics, coordinator_epoch=1)
    response = await write_txn_markers.handle(
        services, coordinator_of(cluster), WriteTxnMarkersRequest(markers=[marker]), 1
    )
    codes = {one.name: one.partitions[0].error_code for one in response.markers[0].topics}
    assert codes == {OFFSETS_TOPIC: ErrorCode.UNKNOWN_SERVER_ERROR, "t": ErrorCode.NONE}
    assert f"a marker of producer {PRODUCER} to {OFFSETS_TOPIC}-3" in caplog.text
    assert await end(cluster) is ErrorCode.NONE


async def test_many_markers_are_answered_together(cluster: DataCluster) -> None:
    for name in "tu":
        await cluster.create(1, topic=name)
    topics = [WritableTxnMarkerTopic(name=name, partition_indexes=[0, 5]) for name in "tu"]
    markers = [
        WritableTxnMarker(producer_id=id, producer_epoch=1, topics=topics, coordinator_epoch=1)
        for id in range(40)
    ]
    response = await write_txn_markers.handle(
        cluster.brokers[1].services,
        coordinator_of(cluster),
        WriteTxnMarkersRequest(markers=markers),
        1,
    )
    assert [one.producer_id for one in response.markers] == list(range(40))
    codes = [[p.error_code for t in one.topics for p in t.partitions] for one in response.markers]
    assert [sorted(one) for one in codes] == [[0, 0, 3, 3]] * 40
    assert cluster.partition(1).log.log_end_offset == 40


async def test_more_markers_than_a_request_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_txn_markers, "MAX_MARKERS", 0)
    async with running_cluster() as cluster:
        await cluster.create(1)
        with pytest.raises(KafkaError, match="INVALID_REQUEST"):
            await end(cluster)
        assert cluster.partition(1).log.log_end_offset == 0


@pytest.mark.parametrize("producer", [{"producer": -1}, {"epoch": -1}, {"epoch": -1, "version": 2}])
async def test_marker_that_names_no_producer_is_not_written(
    cluster: DataCluster, producer: dict[str, int]
) -> None:
    await cluster.create(1)
    assert await end(cluster, **cast("Any", producer)) is ErrorCode.INVALID_REQUEST
    assert cluster.partition(1).log.log_end_offset == 0


async def test_strangers_commit_nothing(cluster: DataCluster) -> None:
    await cluster.create(1)
    use(cluster, Coordinator())
    client = await cluster.client(1)
    await sent(client, in_transaction(0))
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    image = cluster.controller.image
    guesses = ["", "broker-1", "broker-1-", f"broker-1-{'f' * 32}", f"broker-9-{'0' * 32}"]
    guesses += [
        coordinator_of(cluster).client_id[:-1],
        "\u0661",
        f"x{coordinator_of(cluster).client_id}",
    ]
    for name in guesses:
        assert not is_broker(name, image)
        for version in (0, 2):
            assert await end(cluster, client_id=name, coordinator_epoch=0, version=version) is refused
    assert (await read(client, 0)).last_stable_offset == 0
    assert is_broker(coordinator_of(cluster).client_id, image)
    assert await end(cluster) is ErrorCode.NONE
    assert (await read(client, 0)).last_stable_offset == 2


@pytest.mark.parametrize("version", [0, 2])
async def test_tool_aborts_what_is_open_and_nothing_else(cluster: DataCluster, version: int) -> None:
    await cluster.create(1)
    use(cluster, Coordinator())
    client = await cluster.client(1)
    await sent(client, in_transaction(0, epoch=4))
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    epoch = 4 + (version == 2)

    async def abort(**options: int) -> ErrorCode:
        named = {"epoch": epoch, "coordinator_epoch": 0, "version": version} | options
        return await end(cluster, commit=False, client_id="admin", **cast("Any", named))

    for wrong in (
        {"producer": OTHER},
        {"epoch": epoch - 1},
        {"epoch": epoch + 1},
        {"epoch": 0x7FFF},
        {"coordinator_epoch": 1},
    ):
        assert await abort(**wrong) is refused
    assert cluster.partition(1).log.log_end_offset == 1
    assert await abort() is ErrorCode.NONE
    assert (await read(client, 0)).last_stable_offset == 2
    assert await abort() is refused, "there is nothing left to abort"


async def test_tool_names_the_coordinator_that_the_partition_knows(cluster: DataCluster) -> None:
    await cluster.create(1)
    use(cluster, Coordinator())
    client = await cluster.client(1)
    await sent(client, in_transaction(0))
    assert await end(cluster, coordinator_epoch=3) is ErrorCode.NONE
    await sent(client, in_transaction(1))
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await end(cluster, commit=False, client_id="admin", coordinator_epoch=4) is refused
    assert await end(cluster, commit=False, client_id="admin", coordinator_epoch=3) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("setting", "aborts", "commits"), [("none", False, False), ("abort", True, False), ("any", True, True)]
)
async def test_setting_tells_what_strangers_may_do(setting: str, aborts: bool, commits: bool) -> None:
    async with running_cluster(markers_from_clients=setting) as cluster:
        await cluster.create(1)
        use(cluster, Coordinator())
        client = await cluster.client(1)
        for sequence, (commit, expected) in enumerate([(False, aborts), (True, commits)]):
            await sent(client, in_transaction(sequence))
            code = await end(cluster, commit=commit, client_id="admin", coordinator_epoch=3 * commit)
            assert code is (ErrorCode.NONE if expected else ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            await end(cluster, commit=commit)


async def test_marker_of_a_stranger_holds_up_no_other(cluster: DataCluster) -> None:
    await cluster.create(1)
    use(cluster, Coordinator())
    await sent(await cluster.client(1), in_transaction(0))
    places = [WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1])]
    markers = [
        WritableTxnMarker(producer_id=id, producer_epoch=0, topics=places, coordinator_epoch=0)
        for id in (OTHER, PRODUCER)
    ]
    services, stranger = cluster.brokers[1].services, RequestContext(client_id="admin")
    response = await write_txn_markers.handle(services, stranger, WriteTxnMarkersRequest(markers=markers), 1)
    codes = [[p.error_code for p in one.topics[0].partitions] for one in response.markers]
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [sorted(one) for one in codes] == [
        [missing, ErrorCode.CLUSTER_AUTHORIZATION_FAILED],
        [ErrorCode.NONE, missing],
    ]


@pytest.mark.world(brokers=(1, 2))
async def test_producers_are_described(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    use(cluster, Coordinator())
    client = await cluster.client(1)
    await sent(client, in_transaction(0, epoch=2))
    await end(cluster, producer=OTHER, epoch=5)

    async def describe(topic: str, index: int, node_id: int = 1) -> Any:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
        services = cluster.brokers[node_id].services
        response = as_read(describe_producers.handle(services, RequestContext(), request, 0), 0)
        return response.topics[0].partitions[0]

    for node_id in (1, 2):
        found = await describe("t", 0, node_id)
        first, second = found.active_producers
        assert (first.producer_id, first.producer_epoch, first.last_sequence) == (PRODUCER, 2, 0)
        assert (first.last_timestamp, first.coordinator_epoch) == (TIME_MS, -1)
        assert first.current_txn_start_offset == 0
        assert (second.producer_id, second.producer_epoch, second.last_sequence) == (OTHER, 5, -1)
        assert (second.coordinator_epoch, second.current_txn_start_offset) == (3, -1)
    assert (await describe("t", 9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await describe("unknown", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await describe("bad/name", 0)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    cluster.partition(1).producers.fall_behind()
    assert (await describe("t", 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_many_producers_are_described_one_after_the_other(cluster: DataCluster) -> None:
    await cluster.create(1)
    for producer in range(7):
        await end(cluster, producer=producer)
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 0])])
    services = cluster.brokers[1].services
    assert sum(1 for _ in describe_producers.handle(services, RequestContext(), request, 0)) > 7
    response = as_read(describe_producers.handle(services, RequestContext(), request, 0), 0)
    first, second = response.topics[0].partitions
    assert sorted(one.producer_id for one in first.active_producers) == list(range(7))
    assert (second.error_code, second.active_producers) == (ErrorCode.INVALID_REQUEST, [])
