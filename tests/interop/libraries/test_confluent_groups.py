"""confluent-kafka in consumer groups, with the classic and the consumer protocol."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Message, Producer, TopicPartition

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, Deadline, WaitError
from tests.interop.clusters import create_in_sync
from tests.narrowing import present

pytestmark = pytest.mark.interop

NewTopic = Callable[..., str]
Fresh = Callable[[str], str]
Settings = dict[str, object]

# The protocols of a group: the classic one, eager and incremental, and the consumer protocol.
PROTOCOLS: dict[str, Settings] = {
    "classic": {
        "group.protocol": "classic",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 3000,
        "heartbeat.interval.ms": 300,
    },
    "cooperative": {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 3000,
        "heartbeat.interval.ms": 300,
    },
    "consumer": {"group.protocol": "consumer"},
}
every_protocol = pytest.mark.parametrize("protocol", list(PROTOCOLS))
both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def group_settings(cluster: Cluster, group: str, protocol: str, **more: object) -> Settings:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 10,
        "log_level": 0,
        **PROTOCOLS[protocol],
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def produce(cluster: Cluster, topic: str, values: Sequence[str], partitions: int = 1) -> None:
    # Some tests expect each partition's records in this order, even if a batch is refused at first.
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for n, value in enumerate(values):
        producer.produce(topic, value, partition=n % partitions)
    assert producer.flush(20) == 0


@contextmanager
def members(settings: Settings, count: int, topic: str) -> Iterator[list[Consumer]]:
    consumers = [Consumer(settings | {"client.id": f"member-{n}"}) for n in range(count)]
    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        yield consumers
    finally:
        for consumer in consumers:
            consumer.close()


def poll_until(
    consumers: Sequence[Consumer],
    done: Callable[[list[Message]], bool],
    what: str,
    timeout_s: float = PATIENCE_S,
) -> list[Message]:
    """Poll all members in turn until ``done(messages so far)``."""
    found: list[Message] = []
    deadline = Deadline(timeout_s)
    while not done(found):
        if deadline.passed:
            owned = [[item.partition for item in consumer.assignment()] for consumer in consumers]
            raise WaitError(
                f"{what}: not within {timeout_s:.0f} s; {len(found)} messages; members own {owned}"
            )
        for consumer in consumers:
            for message in consumer.consume(100, 0.02):
                assert message.error() is None, message.error()
                found.append(message)
    return found


def are_as_many(wanted: Sequence[int], found: Sequence[Message]) -> bool:
    return len(found) >= len(wanted)


def owned_counts(consumers: Sequence[Consumer]) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


def values_of(messages: Sequence[Message]) -> list[str]:
    return sorted(present(message.value()).decode() for message in messages)


@every_protocol
def test_three_members_share_the_partitions_and_a_leaving_one_hands_its_over(
    trio: Cluster, new_topic: NewTopic, fresh: Fresh, protocol: str
) -> None:
    topic = new_topic(6)
    settings = group_settings(trio, fresh("group"), protocol)
    with members(settings, 3, topic) as consumers:
        poll_until(consumers, lambda _: owned_counts(consumers) == [2, 2, 2], "two partitions each")
        owned = [item.partition for consumer in consumers for item in consumer.assignment()]
        assert sorted(owned) == list(range(6))
        first = [f"a{n:03}" for n in range(60)]
        produce(trio, topic, first, 6)
        found = poll_until(consumers, lambda seen: len(seen) >= 60, "all records of the first round")
        assert values_of(found) == first
        for consumer in consumers:
            consumer.commit(asynchronous=False)
        leaver = consumers.pop()
        leaver.close()
        poll_until(consumers, lambda _: owned_counts(consumers) == [3, 3], "three partitions each")
        second = [f"b{n:03}" for n in range(60)]
        produce(trio, topic, second, 6)
        found = poll_until(consumers, lambda seen: len(seen) >= 60, "all records of the second round")
        assert values_of(found) == second


@both_protocols
def test_partitions_of_a_crashed_member_are_assigned_to_the_others(
    trio: Cluster, new_topic: NewTopic, fresh: Fresh, protocol: str
) -> None:
    topic = new_topic(4)
    settings = group_settings(trio, fresh("group"), protocol)
    script = Path(__file__).parents[1] / "group_member.py"
    victim = subprocess.Popen(
        [sys.executable, str(script), json.dumps(settings), topic], stdout=subprocess.PIPE, text=True
    )
    try:
        assert victim.stdout is not None
        assert json.loads(victim.stdout.readline()) == [0, 1, 2, 3]
        with members(settings, 1, topic) as consumers:
            poll_until(consumers, lambda _: owned_counts(consumers) == [2], "half of the partitions")
            victim.send_signal(signal.SIGKILL)
            victim.wait(PATIENCE_S)
            poll_until(
                consumers, lambda _: owned_counts(consumers) == [4], "the partitions of the crashed member"
            )
    finally:
        victim.kill()
        victim.wait(PATIENCE_S)
        present(victim.stdout).close()


@pytest.mark.shows("confluent-kafka", "{protocol} group")
@both_protocols
def test_committed_offsets_are_where_the_next_member_resumes(
    trio: Cluster, new_topic: NewTopic, fresh: Fresh, protocol: str
) -> None:
    topic = new_topic()
    group = fresh("group")
    produce(trio, topic, [f"{n:02}" for n in range(20)])
    settings = group_settings(trio, group, protocol)
    with members(settings, 1, topic) as consumers:
        found = poll_until(consumers, lambda seen: len(seen) >= 20, "all records")
        message = next(m for m in found if m.offset() == 11)
        (committed,) = consumers[0].commit(message=message, asynchronous=False)
        assert committed.offset == 12
    with members(settings, 1, topic) as consumers:
        found = poll_until(consumers, lambda seen: len(seen) >= 8, "the records after the commit")
        assert [m.offset() for m in found] == list(range(12, 20))
        (seen,) = consumers[0].committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        assert seen.offset == 12


@both_protocols
def test_automatic_commit_and_commit_metadata_are_kept(
    trio: Cluster, new_topic: NewTopic, fresh: Fresh, protocol: str
) -> None:
    topic = new_topic(2)
    produce(trio, topic, ["x"] * 10)
    group = fresh("group")
    settings = group_settings(trio, group, protocol) | {"enable.auto.commit": True}
    with members(settings, 1, topic) as consumers:
        poll_until(consumers, lambda seen: len(seen) >= 10, "all records")
    reader = Consumer(group_settings(trio, group, protocol))
    try:
        seen = reader.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=PATIENCE_S)
        assert [item.offset for item in seen] == [10, OFFSET_INVALID]
    finally:
        reader.close()


def test_commit_metadata_is_returned(trio: Cluster, new_topic: NewTopic, fresh: Fresh) -> None:
    topic = new_topic()
    consumer = Consumer(group_settings(trio, fresh("group"), "classic"))
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 7, metadata="here ü")], asynchronous=False)
        (seen,) = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        assert (seen.offset, seen.metadata) == (7, "here ü")
        with pytest.raises(KafkaException) as refused:
            consumer.commit(offsets=[TopicPartition(topic, 0, 8, metadata="m" * 5000)], asynchronous=False)
        assert refused.value.args[0].name() == "OFFSET_METADATA_TOO_LARGE"
    finally:
        consumer.close()


def test_static_member_that_restarts_in_time_keeps_its_partitions_without_a_rebalance(
    trio: Cluster, new_topic: NewTopic, fresh: Fresh
) -> None:
    topic = new_topic(2)
    settings = group_settings(trio, fresh("group"), "classic", session_timeout_ms=6000)
    static = [Consumer(settings | {"group.instance.id": f"i{n}"}) for n in range(2)]
    try:
        for consumer in static:
            consumer.subscribe([topic])
        poll_until(static, lambda _: owned_counts(static) == [1, 1], "one partition each")
        before = static[1].assignment()
        static[1].close()
        static[1] = Consumer(settings | {"group.instance.id": "i1"})
        static[1].subscribe([topic])
        poll_until(static[1:], lambda _: static[1].assignment() != [], "its partition back")
        assert static[1].assignment() == before
        assert len(static[0].assignment()) == 1
    finally:
        for consumer in static:
            consumer.close()


@both_protocols
def test_new_partitions_and_topics_of_a_pattern_reach_the_group(
    trio: Cluster, new_topic: NewTopic, fresh: Fresh, protocol: str
) -> None:
    prefix = fresh("pattern")
    settings = group_settings(trio, fresh("group"), protocol, topic_metadata_refresh_interval_ms=500)
    create_in_sync(trio, f"{prefix}.one", 1)
    consumer = Consumer(settings)
    try:
        consumer.subscribe([f"^{prefix}\\..*"])
        poll_until([consumer], lambda _: owned_counts([consumer]) == [1], "the first topic")
        create_in_sync(trio, f"{prefix}.two", 2)
        poll_until([consumer], lambda _: owned_counts([consumer]) == [3], "the second topic")
    finally:
        consumer.close()


def test_seek_moves_back_and_forth(trio: Cluster, new_topic: NewTopic, fresh: Fresh) -> None:
    topic = new_topic()
    produce(trio, topic, [str(n) for n in range(50)])
    with members(group_settings(trio, fresh("group"), "consumer"), 1, topic) as consumers:
        poll_until(consumers, lambda seen: len(seen) >= 50, "all records")
        for start in (45, 10):
            consumers[0].seek(TopicPartition(topic, 0, start))
            wanted = list(range(start, 50))
            found = poll_until(consumers, partial(are_as_many, wanted), f"records from {start}")
            assert [m.offset() for m in found] == wanted


def test_offsets_are_found_by_time(trio: Cluster, new_topic: NewTopic, fresh: Fresh) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers})
    start_ms = int(time.time() * 1000) - 100_000
    for n in range(10):
        producer.produce(topic, str(n), timestamp=start_ms + 1000 * n)
        assert producer.flush(20) == 0
    consumer = Consumer(group_settings(trio, fresh("group"), "classic"))
    try:
        for after_ms, expected in ((0, 0), (1, 1), (4000, 4), (8999, 9), (9001, -1)):
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, 0, start_ms + after_ms)], timeout=PATIENCE_S
            )
            assert found.offset == expected, after_ms
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S) == (0, 10)
    finally:
        consumer.close()


def test_offset_out_of_range_resets_as_configured(trio: Cluster, new_topic: NewTopic, fresh: Fresh) -> None:
    topic = new_topic()
    produce(trio, topic, ["a", "b"])
    consumer = Consumer(group_settings(trio, fresh("group"), "classic"))
    try:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        found = poll_until([consumer], lambda seen: len(seen) >= 2, "records after the reset")
        assert [m.value() for m in found] == [b"a", b"b"]
    finally:
        consumer.close()
