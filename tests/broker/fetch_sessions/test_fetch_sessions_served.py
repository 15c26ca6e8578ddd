"""Requests of fetch sessions through the handler of Fetch, beside what the model test draws by chance."""

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import records
from tests.broker.fetch_world import FOLLOWER, FOLLOWER_EPOCH, OTHER, FetchWorld, Slot, connect
from tests.narrowing import present

VERSION = 12


def send(
    world: FetchWorld, topics: str = "", *, session: int = 0, epoch: int = 0, wait_ms: int = 0, on: int = 1
) -> Slot:
    named = [
        records.FetchTopic(
            topic=topic, partitions=[records.FetchPartition(partition=0, partition_max_bytes=1000)]
        )
        for topic in topics
    ]
    request = records.FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, session_id=session, session_epoch=epoch, topics=named
    )
    return world.send(request, VERSION, connect(on))


def answer(slot: Slot) -> records.FetchResponse:
    assert slot.response is not None
    return slot.response


def told(slot: Slot) -> dict[str, int]:
    return {topic.topic: topic.partitions[0].error_code for topic in answer(slot).responses}


def commit(world: FetchWorld, topic: str) -> None:
    world.append(topic)
    for replica in (FOLLOWER, OTHER):
        world.acknowledge(topic, replica)
    world.run()


def test_fenced_broker_refuses_all_partitions_of_a_session() -> None:
    world = FetchWorld("ab")
    session = answer(send(world, "ab")).session_id
    assert told(send(world, session=session, epoch=1)) == {}
    world.set_fenced(True)
    refused = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told(send(world, session=session, epoch=2)) == {"a": refused, "b": refused}
    world.set_fenced(False)
    assert told(send(world, session=session, epoch=3)) == {"a": 0, "b": 0}
    assert told(send(world, session=session, epoch=4)) == {}


def test_request_of_a_session_waits_for_any_of_its_partitions() -> None:
    world = FetchWorld("ab")
    session = answer(send(world, "ab")).session_id
    slot = send(world, session=session, epoch=1, wait_ms=1000)
    assert slot.response is None
    commit(world, "b")
    assert told(slot) == {"b": 0}


def test_next_request_on_the_same_connection_ends_a_wait() -> None:
    world = FetchWorld("ab")
    session = answer(send(world, "a")).session_id
    slot = send(world, session=session, epoch=1, wait_ms=1000)
    assert told(send(world, "b", session=session, epoch=2)) == {"b": 0}
    assert (answer(slot).session_id, told(slot)) == (session, {})


def test_answer_that_its_client_has_given_up_does_not_count_as_told() -> None:
    world = FetchWorld("a")
    session = answer(send(world, "a")).session_id
    slot = send(world, session=session, epoch=1, wait_ms=1000)
    send(world, session=session, epoch=2, on=2)
    assert answer(slot).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_only_registered_brokers_get_the_session_of_a_follower() -> None:
    world = FetchWorld("a")
    for broker_id, epoch, gets in ((FOLLOWER, 102, True), (FOLLOWER, 101, False), (9, 109, False)):
        request = records.FetchRequest(
            replica_state=records.ReplicaState(replica_id=broker_id, replica_epoch=epoch),
            session_epoch=0,
            topics=[
                records.FetchTopic(
                    topic_id=world.topic_id("a"), partitions=[records.FetchPartition(partition=0)]
                )
            ],
        )
        assert (answer(world.send(request, 17, connect(1))).session_id != 0) is gets


def follow(
    world: FetchWorld,
    *topics: str,
    session: int = 0,
    epoch: int = 0,
    forget: str = "",
    on: int = 1,
    offset: int = 0,
) -> records.FetchResponse:
    """A fetch of a follower whose log ends at ``offset``."""
    request = records.FetchRequest(
        replica_state=records.ReplicaState(replica_id=FOLLOWER, replica_epoch=FOLLOWER_EPOCH),
        session_id=session,
        session_epoch=epoch,
        topics=[
            records.FetchTopic(
                topic_id=world.topic_id(topic),
                partitions=[records.FetchPartition(partition=0, log_start_offset=0, fetch_offset=offset)],
            )
            for topic in topics
        ],
        forgotten_topics_data=[
            records.ForgottenTopic(topic_id=world.topic_id(topic), partitions=[0]) for topic in forget
        ],
    )
    return answer(world.send(request, 17, connect(on)))


def test_follower_that_goes_over_to_another_session_is_counted_there() -> None:
    world = FetchWorld("ab")
    partition = present(world.find("a"))
    old = follow(world, "a", "b").session_id
    follow(world, session=old, epoch=1)
    new = follow(world, "a", on=2).session_id  # by another of its fetchers, before the first one forgets it
    follow(world, session=old, epoch=2, forget="a")
    world.clock.now_ms += 60_000
    follow(world, session=new, epoch=1, on=2)
    follow(world, session=new, epoch=2, on=2)
    world.append("a")
    assert not partition.followers[FOLLOWER].is_lagging(1, world.clock.now_ms, 30_000)


def test_late_fetch_over_another_connection_takes_nothing_back_for_long() -> None:
    world = FetchWorld("ab")
    partition = present(world.find("a"))
    old = follow(world, "a").session_id
    world.append("a")
    new = follow(world, "a", on=2, offset=1).session_id  # its fetchers are others now
    follow(world, session=new, epoch=1, on=2)
    assert partition.followers[FOLLOWER].log_end_offset == 1
    follow(world, "a", session=old, epoch=1)  # was sent before, and says that it ends at 0
    follow(world, session=old, epoch=2, forget="a")
    follow(world, session=new, epoch=2, on=2)
    assert partition.followers[FOLLOWER].log_end_offset == 1


def test_partition_of_committed_reads_without_room_does_not_come_to_rest() -> None:
    world = FetchWorld("ab")
    for topic in "ab":
        commit(world, topic)

    def read(offset: int, topics: str, session: int, epoch: int) -> records.FetchResponse:
        named = [
            records.FetchTopic(
                topic=topic,
                partitions=[
                    records.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
                ],
            )
            for topic in topics
        ]
        request = records.FetchRequest(
            min_bytes=1, max_bytes=1, isolation_level=1, session_id=session, session_epoch=epoch, topics=named
        )
        return answer(world.send(request, VERSION, connect(1)))

    def with_records(response: records.FetchResponse) -> list[str | None]:
        return [topic.topic for topic in response.responses if topic.partitions[0].records]

    first = read(0, "ab", 0, 0)
    assert with_records(first) == ["a"]
    assert with_records(read(1, "a", first.session_id, 1)) == ["b"]
    assert with_records(read(1, "b", first.session_id, 2)) == []
