"""The admin client, with something happening at each of its await points: another call of the same client,
the same again, its end, broken connections, leaders and coordinators that move.

Every call returns what there is, or fails because the client was closed, soon; no connection is left open.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.kafka_client.admin.client import Admin, AdminClient
from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import ClientTimeoutError, ConnectionFailedError
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import Topic, TopicPartition
from pykraft.kafka_client.results import ConfigChange, NewTopic, ProducerIdAndEpoch
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import cluster, configs, groups, offsets, records, transactions
from pykraft.kafka_protocol.messages import topics as topic_messages
from pykraft.kafka_protocol.messages.cluster import MetadataResponse, MetadataResponseBroker
from pykraft.runtime.address import Address
from tests.kafka_client.await_points import Places, named, plans
from tests.kafka_client.scripted import HOST, Answer, ScriptedCluster
from tests.kafka_client.virtual_cluster import SILENCE, VirtualNetwork, network_of, run_virtual

PARTITIONS = [TopicPartition("t", index) for index in range(3)]


class World:
    """Three brokers that answer for what they lead and coordinate at the moment."""

    def __init__(self) -> None:
        self.scripted = scripted = ScriptedCluster()
        scripted.add_topic("t", {0: (1, 0), 1: (2, 0), 2: (3, 0)})
        self.coordinator = 1
        scripted.script(ApiKey.LIST_OFFSETS, self._list_offsets)
        scripted.script(ApiKey.DELETE_RECORDS, self._delete_records)
        scripted.script(ApiKey.LIST_GROUPS, self._list_groups)
        scripted.script(ApiKey.FIND_COORDINATOR, self._find_coordinator)
        scripted.script(ApiKey.OFFSET_COMMIT, self._commit)
        scripted.script(ApiKey.CREATE_TOPICS, self._create)
        scripted.script(ApiKey.DESCRIBE_CONFIGS, self._configs)
        scripted.script(ApiKey.CONSUMER_GROUP_DESCRIBE, self._describe_group)
        scripted.script(ApiKey.LEAVE_GROUP, self._leave)
        scripted.script(ApiKey.LIST_TRANSACTIONS, self._list_transactions)
        scripted.script(ApiKey.INIT_PRODUCER_ID, self._fence)
        scripted.script(ApiKey.DESCRIBE_LOG_DIRS, self._log_dirs)
        self.network: VirtualNetwork = network_of(scripted)
        self.network.write_ms = 1

    def admin(self) -> Admin:
        addresses = tuple(broker.address for broker in self.scripted.brokers.values())
        return Admin(self.network, ClientConfig(addresses, request_timeout_ms=1_000))

    def move(self) -> None:
        """Everything to the next broker."""
        leaders = self.scripted.leaders["t"]
        for index, (leader, epoch) in leaders.items():
            leaders[index] = (leader % 3 + 1, epoch + 1)
        self.coordinator = self.coordinator % 3 + 1

    def _led(self, broker_id: int, index: int) -> bool:
        return self.scripted.leaders["t"][index][0] == broker_id

    def _list_offsets(self, broker_id: int, request: records.ListOffsetsRequest, version: int) -> Answer:
        partitions = [
            records.ListOffsetsPartitionResponse(
                partition_index=it.partition_index,
                error_code=0
                if self._led(broker_id, it.partition_index)
                else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                offset=100 + it.partition_index,
            )
            for it in request.topics[0].partitions
        ]
        topic = records.ListOffsetsTopicResponse(name="t", partitions=partitions)
        return records.ListOffsetsResponse(topics=[topic])

    def _delete_records(self, broker_id: int, request: records.DeleteRecordsRequest, version: int) -> Answer:
        partitions = [
            records.DeleteRecordsPartitionResult(
                partition_index=it.partition_index,
                error_code=0
                if self._led(broker_id, it.partition_index)
                else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                low_watermark=it.offset,
            )
            for it in request.topics[0].partitions
        ]
        topic = records.DeleteRecordsTopicResult(name="t", partitions=partitions)
        return records.DeleteRecordsResponse(topics=[topic])

    def _list_groups(self, broker_id: int, request: object, version: int) -> Answer:
        return groups.ListGroupsResponse(groups=[groups.ListedGroup(group_id=f"g{broker_id}")])

    def _find_coordinator(
        self, broker_id: int, request: groups.FindCoordinatorRequest, version: int
    ) -> Answer:
        found = groups.Coordinator(key="g", node_id=self.coordinator, host=HOST, port=self.coordinator)
        return groups.FindCoordinatorResponse(coordinators=[found])

    def _commit(self, broker_id: int, request: offsets.OffsetCommitRequest, version: int) -> Answer:
        code = self._refusal(broker_id)
        partition = offsets.OffsetCommitResponsePartition(partition_index=0, error_code=code)
        topic = offsets.OffsetCommitResponseTopic(name="t", partitions=[partition])
        return offsets.OffsetCommitResponse(topics=[topic])

    def _refusal(self, broker_id: int) -> int:
        return 0 if broker_id == self.coordinator else ErrorCode.NOT_COORDINATOR

    def _describe_group(self, broker_id: int, request: object, version: int) -> Answer:
        group = groups.ConsumerDescribedGroup(
            group_id="g",
            error_code=self._refusal(broker_id),
            members=[groups.Member(member_id="m")],
        )
        return groups.ConsumerGroupDescribeResponse(groups=[group])

    def _leave(self, broker_id: int, request: groups.LeaveGroupRequest, version: int) -> Answer:
        code = self._refusal(broker_id)
        members = [groups.MemberResponse(member_id=it.member_id) for it in request.members]
        return groups.LeaveGroupResponse(error_code=code, members=[] if code else members)

    def _list_transactions(self, broker_id: int, request: object, version: int) -> Answer:
        state = transactions.ListedTransaction(transactional_id=f"x{broker_id}")
        return transactions.ListTransactionsResponse(transaction_states=[state])

    def _fence(self, broker_id: int, request: object, version: int) -> Answer:
        return transactions.InitProducerIdResponse(
            error_code=self._refusal(broker_id), producer_id=7, producer_epoch=3
        )

    def _log_dirs(self, broker_id: int, request: object, version: int) -> Answer:
        found = cluster.DescribeLogDirsResult(log_dir=f"/{broker_id}")
        return cluster.DescribeLogDirsResponse(results=[found])

    def _create(self, broker_id: int, request: topic_messages.CreateTopicsRequest, version: int) -> Answer:
        created = [
            topic_messages.CreatableTopicResult(name=topic.name, topic_id=Uuid(b"i" * 16))
            for topic in request.topics
        ]
        return topic_messages.CreateTopicsResponse(topics=created)

    def _configs(self, broker_id: int, request: configs.DescribeConfigsRequest, version: int) -> Answer:
        config = configs.DescribeConfigsResourceResult(name="node", value=str(broker_id))
        return configs.DescribeConfigsResponse(results=[configs.DescribeConfigsResult(configs=[config])])


async def listed_offsets(admin: Admin) -> object:
    found = await admin.list_offsets(dict.fromkeys(PARTITIONS, -1))
    return {key: one.offset for key, one in found.items()}


async def each_offset(admin: Admin) -> object:
    found = await admin.list_each_offset(dict.fromkeys(PARTITIONS, -1))
    return {key: getattr(one, "offset", one) for key, one in found.items()}


async def deleted_records(admin: Admin) -> object:
    return await admin.delete_records({key: 7 + key.partition for key in PARTITIONS})


async def listed_groups(admin: Admin) -> object:
    return [group.group_id for group in await admin.list_groups()]


async def altered_offsets(admin: Admin) -> object:
    return await admin.alter_group_offsets("g", {PARTITIONS[0]: OffsetAndMetadata(5)})


async def created_topics(admin: Admin) -> object:
    return [one.check().name for one in await admin.create_topics([NewTopic("a"), NewTopic("b")])]


async def configs_of_a_broker(admin: Admin) -> object:
    (entry,) = await admin.describe_configs(ConfigResourceType.BROKER, "2")
    return entry.value


async def described_topics(admin: Admin) -> object:
    (topic,) = await admin.describe_topics(["t"])
    return [one.index for one in topic.partitions]


async def removed_members(admin: Admin) -> object:
    return [one.check().name for one in await admin.remove_group_members("g")]


async def listed_transactions(admin: Admin) -> object:
    return [one.transactional_id for one in await admin.list_transactions()]


async def fenced_producers(admin: Admin) -> object:
    return await admin.fence_producers(["g"])


async def described_log_dirs(admin: Admin) -> object:
    found = await admin.describe_log_dirs([1, 2, 3])
    return {broker_id: [one.path for one in directories] for broker_id, directories in found.items()}


EXPECTED: dict[Callable[[Admin], Awaitable[object]], object] = {
    listed_offsets: {key: 100 + key.partition for key in PARTITIONS},
    each_offset: {key: 100 + key.partition for key in PARTITIONS},
    deleted_records: {key: 7 + key.partition for key in PARTITIONS},
    listed_groups: ["g1", "g2", "g3"],
    altered_offsets: {PARTITIONS[0]: None},
    created_topics: ["a", "b"],
    configs_of_a_broker: "2",
    described_topics: [0, 1, 2],
    removed_members: ["m"],
    listed_transactions: ["x1", "x2", "x3"],
    fenced_producers: {"g": ProducerIdAndEpoch(7, 3)},
    described_log_dirs: {1: ["/1"], 2: ["/2"], 3: ["/3"]},
}
EVENTS = ("again", "other", "close", "cut", "move")


def check_closed(task: asyncio.Future[Any], expected: object) -> None:
    """It, or some of its items, failed because the client was closed; the others are as expected."""
    if (error := task.exception()) is not None:
        assert isinstance(error, ConnectionFailedError), repr(error)
    elif isinstance(expected, dict):
        for key, one in task.result().items():
            assert one == expected[key] or isinstance(one, ConnectionFailedError)
    else:
        assert task.result() == expected


def play(call: Callable[[Admin], Awaitable[Any]], events: dict[int, str]) -> int:
    """One call; how many await points there were."""
    world = World()
    places = Places()

    async def body() -> None:
        admin = world.admin()
        beside: list[tuple[object, asyncio.Future[Any]]] = []
        closed_at: list[float] = []
        loop = asyncio.get_running_loop()

        def close() -> None:
            closed_at.append(loop.time())
            admin.close()

        def begin(other: Callable[[Admin], Awaitable[Any]]) -> None:
            beside.append((EXPECTED[other], asyncio.ensure_future(other(admin))))

        happen: dict[str, Callable[[], object]] = {
            "again": partial(begin, call),
            "other": partial(begin, listed_groups),
            "close": close,
            "cut": partial(world.network.cut, arrives=True),
            "move": world.move,
        }
        places.watch({place: happen[name] for place, name in events.items()})
        world.network.at_await = places.reached
        begin(call)
        while any(not task.done() for _, task in beside):
            await asyncio.wait([task for _, task in beside])
        world.network.at_await = lambda: None
        for expected, task in beside:
            if closed_at:
                check_closed(task, expected)
                assert loop.time() < closed_at[0] + 0.1
            else:
                assert task.result() == expected
        admin.close()
        await asyncio.sleep(0.1)
        assert world.network.connections == 0

    run_virtual(body())
    return places.count


@pytest.mark.parametrize("call", EXPECTED)
def test_whatever_happens_meanwhile_a_call_returns_what_there_is(
    call: Callable[[Admin], Awaitable[Any]],
) -> None:
    count = play(call, {})
    for name in EVENTS:
        for plan in plans(name, EVENTS, count):
            with named(plan):
                play(call, plan)


def test_calls_of_many_tasks_share_one_connection_to_each_broker() -> None:
    world = World()

    async def body() -> None:
        admin = world.admin()
        found = await asyncio.gather(*(call(admin) for call in EXPECTED for _ in range(5)))
        assert found == [expected for expected in EXPECTED.values() for _ in range(5)]
        assert world.network.connections <= 3
        admin.close()

    run_virtual(body())


def test_call_that_gives_up_names_its_own_last_error() -> None:
    """It had no answer, while another call of the same client is refused."""
    world = World()
    refused = topic_messages.CreateTopicsResponse(
        topics=[topic_messages.CreatableTopicResult(name="a", error_code=ErrorCode.NOT_CONTROLLER)]
    )
    world.scripted.script(ApiKey.CREATE_TOPICS, lambda broker, request, version: refused)
    world.scripted.script(ApiKey.LIST_GROUPS, lambda broker, request, version: SILENCE)

    async def body() -> None:
        admin = world.admin()
        creating = asyncio.ensure_future(admin.create_topics([NewTopic("a")], timeout_ms=60_000))
        await asyncio.sleep(0.5)
        with pytest.raises(ClientTimeoutError, match=r"gave up; the last error was .*LIST_GROUPS in time"):
            await admin.list_groups(timeout_ms=3_000)
        assert not creating.done()
        admin.close()
        with pytest.raises(ConnectionFailedError, match="the client is closed"):
            await creating

    run_virtual(body())


def test_calls_of_several_threads_are_made_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    client = AdminClient("broker:1")
    held: list[bool] = []

    async def topics(names: object, deadline_ms: int) -> list[Topic]:
        held.append(client._turn.locked())
        if len(held) == 2:
            raise ClientTimeoutError("the second call")
        return []

    known = SimpleNamespace(topics=topics, deadline=client.admin.cluster.deadline)
    monkeypatch.setattr(client.admin, "cluster", known)
    assert client.list_topics() == []
    with pytest.raises(ClientTimeoutError):
        client.list_topics()
    assert client.list_topics() == []
    assert held == [True] * 3 and not client._turn.locked()
    monkeypatch.undo()
    client.close()


@pytest.fixture
def moved(scripted: ScriptedCluster) -> Callable[[], None]:
    """Calling it, broker 2 is at another address."""
    ports = {broker_id: broker_id for broker_id in scripted.brokers}

    def metadata(broker_id: int, request: object, version: int) -> Answer:
        listed = [
            MetadataResponseBroker(node_id=node_id, host=HOST, port=port) for node_id, port in ports.items()
        ]
        return MetadataResponse(brokers=listed, cluster_id="scripted")

    def move() -> None:
        ports[2] = 102
        broker = scripted.brokers[2]
        scripted.network.brokers[Address(HOST, 102)] = replace(broker)
        broker.up = False

    scripted.script(ApiKey.METADATA, metadata)
    return move


def test_broker_is_asked_where_it_is_now(scripted: ScriptedCluster, moved: Callable[[], None]) -> None:
    config = configs.DescribeConfigsResourceResult(name="node", value="2")
    described = configs.DescribeConfigsResponse(results=[configs.DescribeConfigsResult(configs=[config])])
    altered = configs.IncrementalAlterConfigsResponse(responses=[configs.AlterConfigsResourceResponse()])
    scripted.script(ApiKey.DESCRIBE_CONFIGS, lambda broker, request, version: described)
    scripted.script(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda broker, request, version: altered)
    admin = Admin(scripted.network, scripted.client().config)
    level = [ConfigChange("kafka", ConfigOperation.SET, "DEBUG")]
    for _ in range(2):
        (entry,) = run(admin.describe_configs(ConfigResourceType.BROKER, "2", timeout_ms=5_000))
        assert entry.value == "2"
        run(admin.alter_configs(ConfigResourceType.BROKER_LOGGER, "2", level, timeout_ms=5_000))
        moved()
    admin.close()


def test_topic_that_is_created_again_while_it_is_described_is_described_anew(
    scripted: ScriptedCluster,
) -> None:
    """In pages of one partition: two of the old topic were told by then."""
    scripted.add_topic("t", {})
    asked: list[tuple[str, int] | None] = []

    def page(broker_id: int, request: topic_messages.DescribeTopicPartitionsRequest, version: int) -> Answer:
        at = request.cursor
        asked.append(None if at is None else (at.topic_name, at.partition_index))
        index = 0 if at is None else at.partition_index
        is_old = len(asked) < 3
        partition = topic_messages.DescribeTopicPartitionsResponsePartition(
            partition_index=index, leader_id=1 if is_old else 2
        )
        topic = topic_messages.DescribeTopicPartitionsResponseTopic(
            name="t", topic_id=Uuid((b"o" if is_old else b"n") * 16), partitions=[partition]
        )
        cursor = topic_messages.DescribeTopicPartitionsResponseCursor(
            topic_name="t", partition_index=index + 1
        )
        return topic_messages.DescribeTopicPartitionsResponse(
            topics=[topic], next_cursor=cursor if index < 3 else None
        )

    scripted.script(ApiKey.DESCRIBE_TOPIC_PARTITIONS, page)
    admin = Admin(scripted.network, scripted.client().config)
    (topic,) = run(admin.describe_topics(["t"]))
    assert topic.topic_id == b"n" * 16 and [one.leader for one in topic.partitions] == [2] * 4
    cursors = [None, *(("t", index) for index in (1, 2, 3))]
    assert asked == [*cursors[:3], *cursors]
    admin.close()


def test_partition_that_an_answer_leaves_out_has_an_error(scripted: ScriptedCluster) -> None:
    """And one that was not asked for is not among the results."""
    scripted.add_topic("t", {0: (1, 0), 1: (1, 0)})
    scripted.script(
        ApiKey.LIST_OFFSETS,
        lambda broker, request, version: records.ListOffsetsResponse(
            topics=[
                records.ListOffsetsTopicResponse(
                    name="t",
                    partitions=[
                        records.ListOffsetsPartitionResponse(partition_index=index, offset=5)
                        for index in (0, 7)
                    ],
                )
            ]
        ),
    )
    admin = Admin(scripted.network, scripted.client().config)
    found = run(admin.list_each_offset(dict.fromkeys(PARTITIONS[:2], -1)))
    assert found.keys() == set(PARTITIONS[:2])
    assert getattr(found[PARTITIONS[0]], "offset", None) == 5
    error = found[PARTITIONS[1]]
    assert isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(KafkaError, match="the answer leaves out t-1"):
        run(admin.list_offsets(dict.fromkeys(PARTITIONS[:2], -1)))
    admin.close()


def test_partitions_without_a_leader_are_looked_up_together(scripted: ScriptedCluster) -> None:
    """Not each for itself."""
    scripted.add_topic("t", dict.fromkeys(range(50), (-1, 0)))
    admin = Admin(scripted.network, scripted.client().config)
    places = {TopicPartition("t", index): -1 for index in range(50)}
    found = run(admin.list_each_offset(places, timeout_ms=100))
    assert all(isinstance(one, KafkaError) for one in found.values()) and found.keys() == places.keys()
    assert len(scripted.requests(ApiKey.METADATA)) <= 3
    admin.close()
