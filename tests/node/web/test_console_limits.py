"""The console when the cluster does not answer, or holds more than fits a page."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pykraft.jepsen_like.awaiting import PATIENCE_S, wait_until
from pykraft.kafka_client.admin import Admin
from pykraft.kafka_client.admin_results import NewTopic
from pykraft.node.web.console.cluster_calls import BusyError, CallLimits, ClusterCalls
from pykraft.runtime.address import Address
from pykraft.testing import Cluster, Record
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


def test_only_so_many_pages_are_made_at_once() -> None:
    limits = CallLimits(page_ms=60_000, at_once=2, waiting=1)
    let_go, began = threading.Event(), threading.Semaphore(0)

    async def wait(admin: Admin) -> None:
        began.release()
        await asyncio.to_thread(let_go.wait)

    async def main() -> None:
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

    asyncio.run(main())


def test_page_that_takes_too_long_is_cancelled_and_the_next_one_works() -> None:
    cancelled = threading.Event()

    async def hang(admin: Admin) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def name(admin: Admin) -> str:
        return threading.current_thread().name

    async def main() -> None:
        calls = ClusterCalls(CallLimits(page_ms=50))
        with pytest.raises(TimeoutError):
            await calls.run([Address("localhost", 1)], hang)
        assert await asyncio.to_thread(cancelled.wait, PATIENCE_S)
        assert await calls.run([Address("localhost", 1)], name) == "console"
        await calls.close()

    asyncio.run(main())


def test_closing_does_not_wait_for_pages() -> None:
    async def hang(admin: Admin) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        calls = ClusterCalls(CallLimits())
        asked = asyncio.ensure_future(calls.run([Address("localhost", 1)], hang))
        await asyncio.sleep(0)
        await calls.close()
        with pytest.raises(BusyError):
            await asked

    asyncio.run(main())


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
