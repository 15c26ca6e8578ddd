"""A cluster for tests: in threads and as processes, with records, failovers and faults on demand."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka
import pytest

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.testing import AsyncCluster, Cluster, ErrorCode, KafkaError, NodeFailedError, Record
from pykraft.testing.processes.waits import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    yield cluster.create_topic(request.node.name.replace("[", ".").replace("]", ""))
    cluster.heal()


def test_records_are_read_as_they_were_written(cluster: Cluster, topic: str) -> None:
    whole = Record(b"v", b"k", (("name", b"x"), ("none", None)), 1_000)
    written = cluster.produce(topic, "text", b"bytes", ("key", "value"), (b"key", None), whole)
    assert [one.offset for one in written] == [0, 1, 2, 3, 4]
    assert cluster.read(topic) == written
    pairs = [(b"text", None), (b"bytes", None), (b"value", b"key"), (None, b"key"), (b"v", b"k")]
    assert [(one.value, one.key) for one in written] == pairs
    assert written[4].headers == whole.headers and written[4].timestamp_ms == 1_000
    assert cluster.read(topic, 2) == written[:2]


def test_reading_waits_for_so_many_records(cluster: Cluster, topic: str) -> None:
    later = threading.Timer(0.2, cluster.produce, (topic, "late"))
    later.start()
    (record,) = cluster.read(topic, 1)
    later.join()
    assert record.value == b"late"
    with pytest.raises(TimeoutError, match=f"records, not 2 of {topic}"):
        cluster.read(topic, 2, timeout_s=0.1)


def test_partitions_are_read_in_order(cluster: Cluster) -> None:
    name = cluster.create_topic("partitions", partitions=3)
    for partition in (2, 0):
        cluster.produce(name, "a", "b", partition=partition)
    assert [(one.partition, one.offset) for one in cluster.read(name)] == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert [one.partition for one in cluster.read(name, partition=2)] == [2, 2]


def test_open_transactions_are_not_committed(cluster: Cluster, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush(PATIENCE_S)
    assert cluster.read(topic, committed=True) == []
    assert [one.value for one in cluster.read(topic)] == [b"open"]
    producer.commit_transaction(PATIENCE_S)
    assert [one.value for one in cluster.read(topic, 1, committed=True)] == [b"open"]


def test_clients_join_groups_at_once(cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, "v")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"v"
    finally:
        consumer.close()


def test_errors_are_those_of_kafka(cluster: Cluster, topic: str) -> None:
    with pytest.raises(KafkaError) as refused:
        cluster.create_topic(topic)
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaError) as unknown:
        cluster.read("none", timeout_s=0.2)
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ValueError, match="no node 7; there are 1"):
        cluster.kill(7)


def test_requests_are_refused_as_often_as_asked(cluster: Cluster, topic: str) -> None:
    refused = cluster.refuse("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=2)
    (record,) = cluster.produce(topic, "v")
    assert (record.offset, refused.met, refused.in_force) == (0, 2, False)


def test_error_that_is_final_reaches_the_client(cluster: Cluster, topic: str) -> None:
    with (
        cluster.refuse("produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        pytest.raises(KafkaError) as refused,
    ):
        cluster.produce(topic, "v")
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.produce(topic, "v")
    assert len(cluster.read(topic)) == 1


def test_only_the_named_client_is_refused(cluster: Cluster, topic: str) -> None:
    with cluster.refuse("PRODUCE", ErrorCode.NOT_LEADER_OR_FOLLOWER, client_id="other") as refused:
        cluster.produce(topic, "v")
        config = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "other"}
        producer = confluent_kafka.Producer(config | {"message.timeout.ms": 500, "log_level": 0})
        producer.produce(topic, "v")
        producer.flush(PATIENCE_S)
    assert refused.met > 0
    assert len(cluster.read(topic)) == 1


def test_lost_answer_is_carried_out_and_its_repetition_is_recognized(cluster: Cluster, topic: str) -> None:
    lost = cluster.lose_answer("Produce", times=1)
    cluster.produce(topic, "once")
    assert lost.met == 1
    assert [one.value for one in cluster.read(topic)] == [b"once"]


def test_dropped_request_is_not_carried_out(cluster: Cluster, topic: str) -> None:
    with cluster.drop("CreateTopics") as dropped, cluster.admin() as admin:
        with pytest.raises(KafkaError):
            admin.create_topics([], timeout_ms=300)
        assert dropped.met > 0


def test_delayed_request_waits_and_others_pass(cluster: Cluster, topic: str) -> None:
    with cluster.delay("Produce", 3600.0) as delayed:
        with pytest.raises(TimeoutError):
            cluster.produce(topic, "late", timeout_s=0.2)
        wait_until("a request waits", lambda: delayed.met == 1, PATIENCE_S)
        assert cluster.read(topic) == []


def test_connections_are_dropped_and_made_again(cluster: Cluster, topic: str) -> None:
    dropped: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "error_cb": dropped.append}
    )
    producer.produce(topic, "before")
    assert producer.flush(PATIENCE_S) == 0
    cluster.drop_connections()
    producer.produce(topic, "after")
    assert producer.flush(PATIENCE_S) == 0
    assert [one.value for one in cluster.read(topic)] == [b"before", b"after"]


def test_wall_clock_is_set_and_goes_right_again(cluster: Cluster) -> None:
    name = cluster.create_topic("clock", configs={"message.timestamp.type": "LogAppendTime"})
    cluster.set_clock(datetime(2040, 1, 1, tzinfo=UTC))
    cluster.produce(name, "then")
    cluster.reset_clock()
    cluster.produce(name, "now")
    then, now = (datetime.fromtimestamp(one.timestamp_ms / 1000, UTC) for one in cluster.read(name))
    assert then.year == 2040 and abs((now - datetime.now(UTC)).total_seconds()) < 3600


def test_node_keeps_its_records_when_it_is_killed(cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, "kept")
    address = cluster.bootstrap_servers
    cluster.kill(1)
    assert cluster.running_nodes == ()
    cluster.restart(1)
    assert cluster.bootstrap_servers == address
    assert [one.value for one in cluster.read(topic)] == [b"kept"]


def test_paused_node_answers_when_it_goes_on(cluster: Cluster, topic: str) -> None:
    cluster.pause(1)
    written: list[Record] = []
    writing = threading.Thread(target=lambda: written.extend(cluster.produce(topic, "v")))
    writing.start()
    writing.join(0.2)
    assert not written and cluster.running_nodes == (1,)
    cluster.resume(1)
    writing.join(PATIENCE_S)
    assert [one.offset for one in written] == [0]


def test_cluster_leaves_nothing_behind(tmp_path: Path) -> None:
    threads, handlers = set(threading.enumerate()), signal.getsignal(signal.SIGINT)
    with Cluster(directory=tmp_path) as cluster:
        assert signal.getsignal(signal.SIGINT) is handlers
        cluster.produce(cluster.create_topic("t"), "kept")
    assert [one for one in threading.enumerate() if one not in threads and "pykraft" in one.name] == []
    with pytest.raises(RuntimeError, match="does not run"):
        cluster.produce("t", "v")
    with Cluster(directory=tmp_path) as again:
        assert [one.value for one in again.read("t")] == [b"kept"]


def test_refused_configuration_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        Cluster(properties={"log.segment.bytes": "few"}).start()
    with pytest.raises(ValueError, match="at least one node"):
        Cluster(nodes=0)


def test_two_clusters_run_side_by_side(cluster: Cluster, topic: str) -> None:
    with Cluster() as other:
        other.create_topic(topic)
        other.produce(topic, "other")
        assert cluster.read(topic) == [] and len(other.read(topic)) == 1


def test_coroutines_wait_without_their_loop() -> None:
    async def use() -> tuple[list[bytes | None], int]:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.001)
                turns += 1

        async with Cluster() as cluster:
            assert isinstance(cluster, AsyncCluster)
            counting = asyncio.create_task(count())
            await cluster.create_topic("t")
            await cluster.produce("t", "a", "b")
            read = [one.value for one in await cluster.read("t", 2)]
            counting.cancel()
            return read, turns

    read, turns = asyncio.run(use())
    assert read == [b"a", b"b"] and turns > 0


@pytest.mark.slow
def test_others_take_over_from_a_node_in_a_thread() -> None:
    with Cluster(nodes=3) as cluster:
        _fail_over(cluster, "t")


def test_places_of_a_cluster_are_known() -> None:
    with Cluster(nodes=2) as cluster:
        cluster.create_topic("t", 1)
        cluster.wait_in_sync("t")
        assert all((at / "t-0").is_dir() for at in cluster.log_dirs.values())
        for node, address in cluster.broker_addresses.items():
            with AdminClient(address) as admin:
                assert node in {broker.id for broker in admin.describe_cluster().brokers}
        assert set(cluster.controller_addresses) == set(cluster.broker_addresses) == {1, 2}
        assert not cluster.pids and not cluster.output_files and not cluster.outputs()
        cluster.kill(2)
        with pytest.raises(TimeoutError, match="t is in sync: not within"):
            cluster.wait_in_sync("t", timeout_s=0.1)


@pytest.mark.slow
def test_node_that_does_not_stop_in_order_is_told() -> None:
    with Cluster(processes=True) as cluster:
        os.kill(cluster.pids[1], signal.SIGKILL)
        with pytest.raises(NodeFailedError, match="node 1 did not stop in order"):
            cluster.shut_down(1)
        cluster.restart(1)
        cluster.shut_down(1)


@pytest.mark.slow
def test_nodes_are_processes_that_can_be_killed() -> None:
    with Cluster(nodes=3, processes=True) as cluster:
        _fail_over(cluster, "t")
        assert "is up at" in cluster.output_files[1].read_text("utf-8")
        assert cluster.outputs()[1] and set(cluster.pids) <= set(cluster.nodes)
        with pytest.raises(RuntimeError, match="cannot be reached"):
            cluster.refuse("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _fail_over(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name)
    cluster.produce(name, "a")
    leader = cluster.partition_leader(name)
    cluster.kill(leader)
    assert cluster.partition_leader(name) != leader
    cluster.produce(name, "b")
    cluster.restart(leader)
    second = cluster.partition_leader(name)
    cluster.pause(second)
    wait_until("another leads", lambda: cluster.partition_leader(name) != second, PATIENCE_S)
    cluster.heal()
    cluster.produce(name, "c")
    assert [one.value for one in cluster.read(name)] == [b"a", b"b", b"c"]
