"""The console when the cluster does not answer, or holds more than fits a page."""

import asyncio
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import NewTopic
from pykraft.node.web.console.cluster_calls import BusyError, CallLimits, ClusterCalls
from pykraft.runtime.address import Address
from pykraft.testing import Cluster, Record
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.node.web.console_site import Site, StandIn, console

SHORT = CallLimits(page_ms=3_000, request_ms=1_000, section_ms=300)


def test_cluster_without_a_leader_is_shown_with_what_is_known() -> None:
    with Cluster(3) as cluster:
        topic = cluster.create_topic("kept", replication_factor=3)
        survivor = cluster.partition_leader(topic)
        with cluster.admin() as admin:
            others = [node for node in cluster.nodes if node != survivor]
            lost = NewTopic("lost", assignments={0: (others[0],), 1: (survivor,)})
            admin.create_topics([lost])[0].check()
        servers = cluster.bootstrap_servers.split(",")[survivor - 1]
        with console(StandIn(servers), SHORT) as site:
            assert "the controller is node" in site.get("/console").words
            for node in cluster.nodes:
                if node != survivor:
                    cluster.kill(node)
            wait_until("no controller is named", lambda: _has_no_controller(site), PATIENCE_S)
            overview = site.get("/console").words
            assert "The active controller cannot be shown" in overview and "topics" in overview
            assert topic in site.get("/console/topics").words
            one = site.get("/console/topics/lost/records", partition=0)
            assert one.status == 503 and "lost-0 has no leader that answers" in one.words
            some = site.get("/console/topics/lost/records")
            assert some.status == 200 and "Partition 0 has no leader that answers" in some.words
            quorum = site.get("/console/quorum")
            assert quorum.status == 200 and "The quorum cannot be shown" in quorum.words


def test_broker_that_was_killed_is_seen_at_once_and_hides_no_group_of_others() -> None:
    with Cluster(3, properties={"broker.session.timeout.ms": "60000"}) as cluster:
        topic = cluster.create_topic("read", replication_factor=1)
        names = [f"group-{n}" for n in range(12)]
        with cluster.admin() as admin:
            for name in names:
                admin.alter_group_offsets(name, {TopicPartition(topic, 0): OffsetAndMetadata(0)})
            coordinators = {one.group_id: one.coordinator_id for one in admin.list_groups()}
            controller = admin.describe_quorum().leader_id
        victim = next(node for node in coordinators.values() if node != controller)
        survivor = next(node for node in cluster.nodes if node != victim)
        with console(StandIn(cluster.bootstrap_servers.split(",")[survivor - 1]), SHORT) as site:
            whole = site.get("/console").words
            assert "3 of 3 brokers active" in whole and "12 groups" in whole
            cluster.kill(victim)
            overview, listed = site.get("/console").words, site.get("/console/groups").words
            kept = [name for name in names if coordinators[name] != victim]
            assert "2 of 3 brokers active" in overview and f"{len(kept)} or more groups" in overview
            assert "does not answer" in overview and "does not answer" in site.get("/console/brokers").words
            for words in (overview, listed):
                assert words.count(f"Groups of broker {victim} cannot be shown") == 1
                assert words.count("cannot be shown") == 1
            assert [name for name in names if f"{name} Empty" in listed] == kept


def test_topics_of_a_node_that_was_killed_need_attention_and_the_quorum_goes_on() -> None:
    with Cluster(3) as cluster:
        shared = cluster.create_topic("shared", replication_factor=3)
        with cluster.admin() as admin:
            quorum = admin.describe_quorum()
            victim, survivor = (node for node in cluster.nodes if node != quorum.leader_id)
            kept, lost = (
                NewTopic("kept", assignments={0: (quorum.leader_id,)}),
                NewTopic("lost", assignments={0: (victim,), 1: (survivor,)}),
            )
            for created in admin.create_topics([kept, lost]):
                created.check()
        with console(StandIn(cluster.bootstrap_servers.split(",")[survivor - 1]), SHORT) as site:
            assert "Needs attention" not in site.get("/console").words
            cluster.kill(victim)

            # The record that fences the broker is followed by those of the sweep, which moves leaderships.
            def is_swept() -> bool:
                words = site.get("/console").words
                return "State Partitions lost 1 offline" in words and f"{shared} 1 under-replicated" in words

            wait_until("lost is offline, and shared has moved", is_swept, PATIENCE_S)
            overview = site.get("/console").words
            listed = site.get("/console/topics", troubled=1).words
            assert "Needs attention Topic State Partitions lost" in overview
            assert "All topics that need attention" in overview
            assert "2 topics" in listed and shared in listed and "lost" in listed and "kept" not in listed
            assert f"the controller is node {quorum.leader_id}" in overview
        with cluster.admin() as admin:
            now = admin.describe_quorum()
        assert (now.leader_id, now.leader_epoch) == (quorum.leader_id, quorum.leader_epoch)


def _has_no_controller(site: Site) -> bool:
    return "The active controller cannot be shown" in site.get("/console").words


def test_cluster_that_does_not_answer_is_given_up_in_time() -> None:
    with Cluster() as cluster, console(StandIn(cluster.bootstrap_servers), SHORT) as site:
        assert site.get("/console/topics").status == 200
        cluster.pause(1)
        try:
            answer = site.get("/console/topics")
            assert answer.status == 504 and "No answer in time" in answer.words
            assert "majority of the controllers" in answer.words
        finally:
            cluster.resume(1)
        assert site.get("/console/topics").status == 200


def test_nobody_listens() -> None:
    with console(StandIn("127.0.0.1:1"), SHORT) as site:
        answer = site.get("/console/topics")
        assert answer.status in (503, 504) and "127.0.0.1:1" in answer.words


async def test_only_so_many_pages_are_made_at_once() -> None:
    limits = CallLimits(page_ms=60_000, at_once=2, waiting=1)
    let_go, began = threading.Event(), threading.Semaphore(0)

    async def wait(admin: Admin) -> None:
        began.release()
        await asyncio.to_thread(let_go.wait)

    calls = ClusterCalls(limits)
    asked = [asyncio.ensure_future(calls.run([Address("localhost", 1)], wait)) for _ in range(3)]
    try:
        for _ in range(2):
            await asyncio.to_thread(began.acquire)
        with pytest.raises(BusyError):
            await calls.run([Address("localhost", 1)], wait)
        let_go.set()
        await asyncio.gather(*asked)
    finally:
        let_go.set()
        await calls.close()
    with pytest.raises(BusyError):
        await calls.run([Address("localhost", 1)], wait)


async def test_page_that_takes_too_long_is_cancelled_and_the_next_one_works() -> None:
    cancelled = threading.Event()

    async def hang(admin: Admin) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def name(admin: Admin) -> str:
        return threading.current_thread().name

    calls = ClusterCalls(CallLimits(page_ms=50))
    with pytest.raises(TimeoutError):
        await calls.run([Address("localhost", 1)], hang)
    assert await asyncio.to_thread(cancelled.wait, PATIENCE_S)
    assert await calls.run([Address("localhost", 1)], name) == "console"
    await calls.close()


async def test_closing_does_not_wait_for_pages() -> None:
    async def hang(admin: Admin) -> None:
        await asyncio.Event().wait()

    calls = ClusterCalls(CallLimits())
    asked = asyncio.ensure_future(calls.run([Address("localhost", 1)], hang))
    await asyncio.sleep(0)
    await calls.close()
    with pytest.raises(BusyError):
        await asked


def test_large_records_are_read_a_few_at_a_time() -> None:
    with Cluster(properties={"message.max.bytes": "8000000"}) as cluster:
        topic = cluster.create_topic("large")
        for number in range(24):
            cluster.produce(topic, Record(bytes([65 + number]) * 900_000))
        path = f"/console/topics/{topic}/records"
        with console(StandIn(cluster.bootstrap_servers)) as site:
            newest = site.get(path, partition=0, limit=200).words
            (start,) = re.findall(r"offsets (\d+) up to 24, of 0 up to 24", newest)
            assert 15 <= int(start) <= 16
            oldest = site.get(path, partition=0, from_="oldest", limit=200).words
            (end,) = re.findall(r"offsets 0 up to (\d+), of 0 up to 24", oldest)
            assert 1 <= int(end) <= 10


def test_pages_are_made_while_others_wait() -> None:
    with (
        Cluster() as cluster,
        console(StandIn(cluster.bootstrap_servers)) as site,
        ThreadPoolExecutor(8) as pool,
    ):
        began = time.monotonic()
        answers = list(pool.map(lambda _: site.get("/console").status, range(16)))
        assert answers == [200] * 16, time.monotonic() - began
