"""What can only wait in vain is refused at once, with the cause; what takes too long says why."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import NewTopic
from pykraft.node.errors import StartError
from pykraft.runtime.free_ports import first_in_a_row, free_ports
from pykraft.testing import AsyncCluster, Cluster, ErrorCode, KafkaError, Record


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.create_topic("t", partitions=3)
        yield cluster


@pytest.fixture(autouse=True)
def healed(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.heal()


NOT_WRITABLE: dict[str, tuple[Any, str]] = {
    "mapping": ({"a": 1}, r"not {'a': 1}, which is of type dict"),
    "number": (5, "not 5, which is of type int"),
    "list": ([b"a"], "of type list"),
    "key": ((5, "v"), "not 5"),
    "value of a pair": (("k", {"a": 1}), "of type dict"),
    "triple": (("k", "v", "w"), "has 3 items"),
    "record": (Record("text"), "not 'text', which is of type str"),  # type: ignore[arg-type]
    "header": (Record(b"v", None, (("h", 1),)), "not 1"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", NOT_WRITABLE)
def test_what_is_no_record_is_refused_and_nothing_is_written(cluster: Cluster, what: str) -> None:
    record, said = NOT_WRITABLE[what]
    before = cluster.read("t")
    with pytest.raises(TypeError, match=said):
        cluster.produce("t", "first", record)
    assert cluster.read("t") == before


CALLS: dict[str, Callable[[Cluster, str, int | None], object]] = {
    "produce": lambda cluster, topic, partition: cluster.produce(topic, "v", partition=partition),
    "read": lambda cluster, topic, partition: cluster.read(topic, 1, partition=partition),
    "partition_leader": lambda cluster, topic, partition: cluster.partition_leader(topic, partition or 0),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("partition", [3, 7, -1])
def test_a_partition_that_there_is_not_is_refused(cluster: Cluster, call: str, partition: int) -> None:
    with pytest.raises(KafkaError, match=rf"t has no partition {partition}; there is 0 to 2") as refused:
        CALLS[call](cluster, "t", partition)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_only_partition_is_named(cluster: Cluster) -> None:
    with pytest.raises(KafkaError, match="has no partition 1; there is only 0"):
        cluster.produce(cluster.create_topic("one"), "v", partition=1)


@pytest.mark.parametrize("call", ["produce", "read"])
def test_a_topic_that_there_is_not_is_refused(cluster: Cluster, call: str) -> None:
    with pytest.raises(KafkaError, match="topic none does not exist"):
        CALLS[call](cluster, "none", None)


def _on_topic(call: Callable[[Cluster, str, int | None], object], cluster: Cluster) -> object:
    return call(cluster, "t", None)


NEED_A_NODE: dict[str, Callable[[Cluster], object]] = {
    **{name: partial(_on_topic, call) for name, call in CALLS.items()},
    "create_topic": lambda cluster: cluster.create_topic("new"),
}


@pytest.mark.parametrize("call", NEED_A_NODE)
def test_without_a_running_node_nothing_is_waited_for(cluster: Cluster, call: str) -> None:
    cluster.kill(1)
    with pytest.raises(RuntimeError, match=r"no node of the cluster runs \(node 1 does not run\)"):
        NEED_A_NODE[call](cluster)
    cluster.restart(1)
    NEED_A_NODE[call](cluster) if call == "produce" else cluster.partition_leader("t")


def test_what_takes_too_long_says_which_nodes_are_in_the_way(cluster: Cluster) -> None:
    cluster.pause(1)
    with pytest.raises(TimeoutError, match=r"\(node 1 is paused\)"):
        cluster.read("t", timeout_s=0.3)
    with pytest.raises(TimeoutError, match=r"knows the topic t \(node 1 is paused\)"):
        cluster.wait_in_sync("t", timeout_s=0.1)
    cluster.resume(1)
    with pytest.raises(TimeoutError, match=r"none is in sync: not within 0.1 s: no broker .* topic none$"):
        cluster.wait_in_sync("none", timeout_s=0.1)


def test_a_record_that_is_not_written_in_time_says_what_was_last_in_the_way(cluster: Cluster) -> None:
    with (
        cluster.refuse("Produce", ErrorCode.NOT_ENOUGH_REPLICAS),
        pytest.raises(TimeoutError, match=r"1 of 1 records were not written to t within 0.5 s: .*NOT_ENOUGH"),
    ):
        cluster.produce("t", "v", timeout_s=0.5)


def test_of_several_nodes_a_majority_is_needed_to_decide_and_a_replica_to_write() -> None:
    with Cluster(nodes=3) as cluster:
        with cluster.admin() as admin:
            placed = {0: (1,), 1: (2,), 2: (3,)}
            (created,) = admin.create_topics([NewTopic("t", assignments=placed)])
            created.check()
        cluster.produce("t", *["v"] * 50)
        for node in (2, 3):
            cluster.kill(node)
        with pytest.raises(RuntimeError, match=r"no majority \(node 2 does not run, node 3 does not run\)"):
            cluster.create_topic("new")
        with pytest.raises(RuntimeError, match=r"no replica of t-1 runs; its nodes are 2"):
            cluster.produce("t", "v", partition=1)
        assert cluster.produce("t", "v", partition=0)


def test_a_node_that_cannot_serve_says_which_others_do_not_run() -> None:
    with Cluster(nodes=3, timeout_s=2.0) as cluster:
        for node in cluster.nodes:
            cluster.kill(node)
        with pytest.raises(
            TimeoutError, match=r"node 1 does not serve within 2 s; nodes that do not run: 2, 3"
        ):
            cluster.restart(1)


# -- event loops -------------------------------------------------------------------------------------------

WAITING = (
    *("start", "create_topic", "wait_in_sync", "produce", "read", "partition_leader"),
    *("kill", "shut_down", "restart", "pause", "resume"),
)


@pytest.mark.parametrize("method", WAITING)
async def test_what_waits_is_refused_on_the_thread_of_a_running_loop(cluster: Cluster, method: str) -> None:
    with pytest.raises(RuntimeError, match=rf"^{method}\(\) waits, .* kafka_async.* await {method}\(\)$"):
        getattr(cluster, method)("t")
    assert cluster.running_nodes == (1,)


async def test_a_cluster_is_not_started_where_it_would_stop_a_loop_and_what_only_sets_something_may_be_called(
    cluster: Cluster,
) -> None:
    with pytest.raises(RuntimeError, match="async with Cluster"), Cluster():
        pass
    with cluster.refuse("Produce", ErrorCode.NOT_ENOUGH_REPLICAS):
        assert cluster.nodes == (1,)


def test_every_method_that_waits_has_one_to_await() -> None:
    assert all(asyncio.iscoroutinefunction(getattr(AsyncCluster, name)) for name in {*WAITING} - {"start"})


def test_coroutines_are_written_to_and_read_from_while_their_loop_runs(cluster: Cluster) -> None:
    """The one that reads waits for a record that a task of the same loop writes."""

    async def write_later(kafka: AsyncCluster) -> None:
        await asyncio.sleep(0.05)
        await kafka.produce(topic, "v")

    async def use(kafka: AsyncCluster) -> list[bytes | None]:
        reading: Awaitable[list[Record]] = kafka.read(topic, 1)
        _, found = await asyncio.gather(write_later(kafka), reading)
        return [one.value for one in found]

    topic = cluster.create_topic("loop")
    assert asyncio.run(use(AsyncCluster(cluster))) == [b"v"]


# -- addresses ---------------------------------------------------------------------------------------------


def answers(address: str) -> bool:
    with AdminClient(address, default_api_timeout_ms=5_000) as admin:
        return bool(admin.describe_cluster().brokers)


def test_a_port_is_that_of_the_first_broker_and_the_others_follow() -> None:
    port = first_in_a_row(2)
    with Cluster(nodes=2, port=port) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{port},127.0.0.1:{port + 1}"
        assert all(map(answers, cluster.broker_addresses.values()))


def test_a_node_that_fails_is_told_at_once_though_another_waits_for_it() -> None:
    """One of two is no majority: the other would wait until the timeout."""
    port = first_in_a_row(2)
    with socket.create_server(("127.0.0.1", port + 1)), pytest.raises(StartError, match="in use"):
        Cluster(nodes=2, port=port, timeout_s=600.0).start()


def test_a_host_is_listened_on() -> None:
    with Cluster(host="127.0.0.2") as cluster:
        assert cluster.bootstrap_servers.startswith("127.0.0.2:")
        cluster.produce(cluster.create_topic("t"), "v")


@pytest.fixture
def free_port() -> int:
    return free_ports(1)[0]


@pytest.mark.parametrize(
    "of_controllers", ["", ",CONTROLLER://127.0.0.1:0", ",KAFKA_CONTROLLER://127.0.0.1:0"]
)
def test_listeners_are_where_the_cluster_says_it_is(free_port: int, of_controllers: str) -> None:
    listeners = f"PLAINTEXT://127.0.0.1:{free_port}{of_controllers}"
    with Cluster(properties={"listeners": listeners}) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{free_port}"
        assert answers(cluster.bootstrap_servers)
        cluster.produce(cluster.create_topic("t"), "v")
        assert all(cluster.controller_addresses.values())


@pytest.mark.parametrize("host", ["0.0.0.0", ""])
def test_listeners_on_every_address_are_reached_on_this_machine(host: str) -> None:
    with Cluster(nodes=2, properties={"listeners": f"PLAINTEXT://{host}:0"}) as cluster:
        first, second = cluster.broker_addresses.values()
        assert first.startswith("127.0.0.1:") and second.startswith("127.0.0.1:") and first != second
        assert answers(first) and answers(second)


def test_other_names_of_listeners_are_taken_as_they_are() -> None:
    properties = {
        "listeners": "C://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "controller.listener.names": "C",
        "listener.security.protocol.map": "C:PLAINTEXT,CLIENTS:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
    }
    with Cluster(properties=properties) as cluster:
        cluster.produce(cluster.create_topic("t"), "v")
        assert not any(cluster.controller_addresses.values())


def test_listeners_that_only_one_of_several_nodes_could_have_are_refused(free_port: int) -> None:
    properties = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port}"}
    with pytest.raises(
        ConfigError, match=rf"nodes 1 and 2 would both listen on 127.0.0.1:{free_port}: .*port 0"
    ):
        Cluster(nodes=2, properties=properties).start()


def test_listeners_without_those_that_are_named_for_controllers_are_refused() -> None:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "controller.listener.names": "OTHER"}
    with pytest.raises(ConfigError, match="listeners has no OTHER"):
        Cluster(properties=properties).start()
