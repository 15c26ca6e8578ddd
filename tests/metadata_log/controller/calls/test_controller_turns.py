"""No request of a client holds the event loop of the active controller, whatever it names and how often.

Work is counted in calls (:mod:`.turn_counter`), not in time. Every request that the controller decides is
tried, with thousands of items.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

import pytest

from pykraft.configuration.keys import nearest_key
from pykraft.configuration.server_keys import KNOWN_NAMES
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import cluster
from pykraft.kafka_protocol.messages import configs as config_messages
from pykraft.kafka_protocol.messages import topics as topic_messages
from pykraft.kafka_protocol.messages.cluster import RemoveRaftVoterRequest, UnregisterBrokerRequest
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller.calls.forwarding import FORWARDED
from pykraft.metadata_log.controller.calls.request_parts import PART_COST
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.records import (
    OWN_OFFSET,
    Endpoint,
    FeatureLevelRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from pykraft.metadata_log.replay import replay
from pykraft.quorum.listener import CommittedBatch
from tests.metadata_log.driver_world import NODE, World
from tests.metadata_log.turn_counter import CountingLoop

ITEMS: Final = 3_000
MOST_PARTITIONS: Final = 9_990
"""A topic with so many can be created: one request may need 10,000 records."""
MOST_CALLS: Final = 25_000
"""In a turn: some five milliseconds."""

DOTS: Final = "a.b_c.d.e.f.g.h.i.j.k"
TOPIC, BROKER, GROUP, CLIENT_METRICS = 2, 4, 32, 16


def _topics(
    name: str = "new{}", partitions: int = 1, replicas: int = 1
) -> list[topic_messages.CreatableTopic]:
    return [
        topic_messages.CreatableTopic(
            name=name.format(n), num_partitions=partitions, replication_factor=replicas
        )
        for n in range(ITEMS)
    ]


def _wide(**fields: Any) -> topic_messages.CreatableTopic:
    """A topic to be created with as many partitions as one request may create."""
    given = {"num_partitions": MOST_PARTITIONS, "replication_factor": 2, **fields}
    return topic_messages.CreatableTopic(name="wider", **given)


def _assign(count: int, wrong: int = 0) -> list[topic_messages.CreatableReplicaAssignment]:
    """To both brokers; the last ``wrong`` of them to one that does not exist."""
    return [
        topic_messages.CreatableReplicaAssignment(
            partition_index=index, broker_ids=[1, 2] if index < count - wrong else [1, 3]
        )
        for index in range(count)
    ]


def _create(topics: list[topic_messages.CreatableTopic], validate_only: bool = False) -> Message:
    return topic_messages.CreateTopicsRequest(topics=topics, validate_only=validate_only)


def _grow(name: str, count: int = 2, topics: int = ITEMS) -> Message:
    wanted = [
        topic_messages.CreatePartitionsTopic(name=name.format(n), count=count, assignments=None)
        for n in range(topics)
    ]
    return topic_messages.CreatePartitionsRequest(topics=wanted)


def _delete(*names: str | None) -> Message:
    states = [topic_messages.DeleteTopicState(name=name) for name in names]
    return topic_messages.DeleteTopicsRequest(topics=states)


def _incremental(kind: int, name: str, entries: list[tuple[str, int, str | None]]) -> Message:
    configs = [config_messages.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in entries]
    return config_messages.IncrementalAlterConfigsRequest(
        resources=[
            config_messages.AlterConfigsResource(
                resource_type=kind, resource_name=name.format(n), configs=configs
            )
            for n in range(ITEMS)
        ]
    )


def _one_resource(kind: int, name: str, entries: list[tuple[str, int, str | None]]) -> Message:
    configs = [config_messages.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in entries]
    resource = config_messages.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return config_messages.IncrementalAlterConfigsRequest(resources=[resource])


def _legacy(name: str, entries: list[tuple[str, str | None]]) -> Message:
    configs = [config_messages.LegacyAlterableConfig(name=n, value=v) for n, v in entries]
    return config_messages.AlterConfigsRequest(
        resources=[
            config_messages.LegacyAlterConfigsResource(
                resource_type=TOPIC, resource_name=name.format(n), configs=configs
            )
            for n in range(ITEMS)
        ]
    )


def _elect(indexes: list[int], election_type: int = 0, topics: int = 1) -> Message:
    asked = [topic_messages.TopicPartitions(topic="wide", partitions=indexes) for _ in range(topics)]
    return topic_messages.ElectLeadersRequest(election_type=election_type, topic_partitions=asked)


def _move(name: str, replicas: list[int] | None, topics: int, indexes: range) -> Message:
    partitions = [topic_messages.ReassignablePartition(partition_index=n, replicas=replicas) for n in indexes]
    return topic_messages.AlterPartitionReassignmentsRequest(
        topics=[
            topic_messages.ReassignableTopic(name=name.format(n), partitions=partitions)
            for n in range(topics)
        ]
    )


def _list(name: str, topics: int, indexes: list[int]) -> Message:
    return topic_messages.ListPartitionReassignmentsRequest(
        topics=[
            topic_messages.ListPartitionReassignmentsTopics(name=name.format(n), partition_indexes=indexes)
            for n in range(topics)
        ]
    )


def _describe(name: str, topics: int, partitions: int) -> Message:
    asked = [cluster.DescribeQuorumRequestPartitionData(partition_index=0) for _ in range(partitions)]
    return cluster.DescribeQuorumRequest(
        topics=[
            cluster.DescribeQuorumRequestTopicData(topic_name=name, partitions=asked) for _ in range(topics)
        ]
    )


def _finalize(name: str) -> Message:
    return cluster.UpdateFeaturesRequest(
        feature_updates=[
            cluster.FeatureUpdateKey(feature=name.format(n), max_version_level=1) for n in range(ITEMS)
        ]
    )


UNKNOWN = "retension.ms"

CASES: Final[dict[str, Callable[[], Message]]] = {
    "create": lambda: _create(_topics()),
    "create, only validated": lambda: _create(_topics(), validate_only=True),
    "create, with dots": lambda: _create(_topics(DOTS + "{}")),
    "create, with dots, only validated": lambda: _create(_topics(DOTS + "{}"), validate_only=True),
    "create, all the same": lambda: _create(_topics("one")),
    "create, present": lambda: _create(_topics("t{}")),
    "create, without partitions": lambda: _create(_topics(partitions=0)),
    "create, too many replicas": lambda: _create(_topics(replicas=9)),
    "create, too many partitions": lambda: _create(_topics(partitions=4)),
    "create, bad names": lambda: _create(_topics("{}?")),
    "create one with many partitions": lambda: _create([_wide()]),
    "create one with many partitions, only validated": lambda: _create([_wide()], validate_only=True),
    "create one with many assignments": lambda: _create(
        [_wide(num_partitions=-1, replication_factor=-1, assignments=_assign(MOST_PARTITIONS))]
    ),
    "create one with many assignments, of which the last is wrong": lambda: _create(
        [_wide(num_partitions=-1, replication_factor=-1, assignments=_assign(MOST_PARTITIONS, 1))]
    ),
    "grow by many partitions": lambda: _grow("wide", ITEMS + MOST_PARTITIONS, topics=1),
    "grow, unknown": lambda: _grow("new{}"),
    "grow": lambda: _grow("t{}"),
    "grow, all the same": lambda: _grow("t1"),
    "delete, unknown": lambda: _delete(*(f"new{n}" for n in range(ITEMS))),
    "delete": lambda: _delete(*(f"t{n}" for n in range(ITEMS))),
    "delete, all the same": lambda: _delete(*["t1"] * ITEMS),
    "delete, neither name nor id": lambda: _delete(*[None] * ITEMS),
    "alter topics": lambda: _incremental(TOPIC, "t{}", [("retention.ms", 0, "5")]),
    "alter unknown topics": lambda: _incremental(TOPIC, "new{}", []),
    "alter topics, unknown key": lambda: _incremental(TOPIC, "t{}", [(UNKNOWN, 0, "5")]),
    "alter groups, unknown key": lambda: _incremental(GROUP, "g{}", [(UNKNOWN, 0, "5")]),
    "alter brokers, unknown key": lambda: _one_resource(BROKER, "1", [("log." + UNKNOWN, 0, "5")]),
    "alter metrics, unknown key": lambda: _incremental(CLIENT_METRICS, "m{}", [(UNKNOWN, 0, "5")]),
    "alter one topic, many keys": lambda: _one_resource(
        TOPIC, "t1", [(f"{UNKNOWN}{n}", 0, "5") for n in range(ITEMS)]
    ),
    "alter one topic all the time": lambda: _incremental(TOPIC, "t1", [("retention.ms", 0, "5")]),
    "alter one broker all the time": lambda: _incremental(BROKER, "1", []),
    "alter, too many keys": lambda: _incremental(TOPIC, "t{}", [("retention.ms", 0, "5")] * 4),
    "alter a list": lambda: _one_resource(
        TOPIC, "t1", [("cleanup.policy", 2, ",".join(map(str, range(6_500))))]
    ),
    "alter topics as before": lambda: _legacy("t{}", [("retention.ms", "5")]),
    "alter unknown topics as before": lambda: _legacy("new{}", []),
    "alter one topic as before": lambda: _legacy("t1", [("retention.ms", "5")]),
    "elect": lambda: _elect(list(range(ITEMS))),
    "elect, one all the time": lambda: _elect([0] * ITEMS),
    "elect, in many topics": lambda: _elect([0], 1, topics=ITEMS),
    "elect all": lambda: topic_messages.ElectLeadersRequest(topic_partitions=None),
    "elect all, unclean": lambda: topic_messages.ElectLeadersRequest(election_type=1, topic_partitions=None),
    "move": lambda: _move("wide", [2], 1, range(ITEMS)),
    "move, unknown": lambda: _move("new{}", [2], ITEMS, range(1)),
    "move, one all the time": lambda: _move("wide", [2], ITEMS, range(1)),
    "cancel": lambda: _move("wide", None, 1, range(ITEMS)),
    "topics without partitions": lambda: _move("new{}", None, ITEMS, range(0)),
    "list": lambda: _list("wide", 1, list(range(ITEMS))),
    "list, one all the time": lambda: _list("wide", ITEMS, [0]),
    "list, in many topics": lambda: _list("t{}", ITEMS, [0]),
    "list all": lambda: topic_messages.ListPartitionReassignmentsRequest(topics=None),
    "describe": lambda: _describe("__cluster_metadata", 1, ITEMS),
    "describe in many topics": lambda: _describe("__cluster_metadata", ITEMS, 1),
    "finalize, unknown": lambda: _finalize("feature{}"),
    "finalize, one all the time": lambda: _finalize("metadata.version"),
    "unregister": lambda: UnregisterBrokerRequest(broker_id=7),
    "add a voter": lambda: cluster.AddRaftVoterRequest(
        voter_id=9,
        voter_directory_id=Uuid(bytes(15) + b"9"),
        listeners=[cluster.Listener(name=f"l{n}", host="h", port=1) for n in range(ITEMS)],
    ),
    "remove a voter": lambda: RemoveRaftVoterRequest(voter_id=9),
}


def test_every_request_that_the_controller_answers_is_tried() -> None:
    assert {build().API_KEY for build in CASES.values()} == set(FORWARDED)


async def _answer(world: World, request: Message, body: bytes) -> None:
    """Have a request answered; its body is encoded in its newest version."""
    version = request.MAX_VERSION
    with contextlib.suppress(KafkaError):
        await world.driver.forward(RequestContext(), request.API_KEY, version, body, 30_000)


async def _commit(world: World) -> None:
    while True:
        for _ in world.quorum.commit_in_pieces():
            await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.fixture(scope="module")
def image() -> MetadataImage:
    """Two brokers, thousands of topics, many with a dot in their names, and one with many partitions."""
    nearest_key(UNKNOWN, KNOWN_NAMES)  # what it knows of the keys is made once
    records: list[Record] = [FeatureLevelRecord("metadata.version", 30)]
    for broker_id in (1, 2):
        endpoints, log_dirs = (Endpoint("PLAINTEXT", "h", 1),), (Uuid(bytes([100 + broker_id]) * 16),)
        records.append(
            RegisterBrokerRecord(
                broker_id,
                Uuid(bytes([broker_id]) * 16),
                OWN_OFFSET,
                endpoints,
                log_dirs=log_dirs,
                fenced=False,
            )
        )
    names = ["wide", *(name.format(n) for n in range(ITEMS) for name in ("t{}", "x.{}"))]
    for number, name in enumerate(names):
        topic_id = Uuid(number.to_bytes(16, "big"))
        records.append(TopicRecord(name, topic_id))
        for index in range(ITEMS if name == "wide" else 1):
            records.append(PartitionRecord(index, topic_id, (1, 2), (1, 2), leader=1))
    return replay(EMPTY_IMAGE, records, 0, 1)[0]


def _world_of(image: MetadataImage) -> World:
    world = World()
    quorum = world.quorum
    quorum.batches.append(CommittedBatch(image.offset, image.offset, 1, 0, ()))
    quorum.delivered = 1
    for loader, driver in zip(quorum.listeners, (world.driver, world.standby), strict=True):
        loader.image = image
        driver.handle_snapshot(image)
    return world


def _count(image: MetadataImage, requests: Callable[[], list[Message]]) -> CountingLoop:
    """Answer these requests at once, and count."""

    async def main() -> None:
        world = _world_of(image)
        world.quorum.elect(NODE, 2)
        asked = [(request, request.encode(request.MAX_VERSION)) for request in requests()]
        await asyncio.sleep(1)
        loop.forget()
        commits = asyncio.ensure_future(_commit(world))
        await asyncio.gather(*(_answer(world, *one) for one in asked))
        commits.cancel()
        assert not world.fatal

    loop = CountingLoop()
    loop.run_counted(main())
    return loop


@pytest.mark.parametrize("case", CASES)
def test_no_turn_is_long(case: str, image: MetadataImage) -> None:
    assert _count(image, lambda: [CASES[case]()]).longest <= MOST_CALLS


def test_many_large_requests_take_turns(image: MetadataImage) -> None:
    """Only their first slices may fall into one turn, before any of them is decided."""
    count = 500
    loop = _count(image, lambda: [_create(_topics(f"{name}{{}}")[:count]) for name in "abcdef"])
    assert loop.longest <= 3 * MOST_CALLS
    assert loop.turns > 6 * (count * 7 // PART_COST)
