"""Real nodes in this process whose metadata log is replaced by snapshots: no metadata is lost."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.metadata_log.image import MetadataImage
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.node.format import format_directories
from pykraft.node.node import Node
from pykraft.node.run import make_world
from pykraft.runtime.address import Address
from pykraft.runtime.free_ports import free_ports
from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.rpc import PendingCall, RpcFailure, RpcTransport
from pykraft.testing.processes.waits import PATIENCE_S
from tests.narrowing import as_type

M = TypeVar("M", bound=Message)

HOST = "127.0.0.1"
TIMEOUT_S = PATIENCE_S
SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.log.segment.bytes": "2000",
    "metadata.max.retention.bytes": "1",
    "controller.quorum.election.timeout.ms": "300",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
}


draw = Random(1).randbytes


class CuttableTransport:
    """Of which the calls fail while ``is_cut``."""

    def __init__(self, make: Callable[[], RpcTransport]) -> None:
        self.is_cut = False
        self._transport = make()

    def send(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> PendingCall:
        if self.is_cut:
            return asyncio.get_running_loop().call_later(0.02, on_reply, RpcFailure("cut off"))
        return self._transport.send(to, method, payload, deadline_ms, on_reply)

    async def close(self) -> None:
        await self._transport.close()


class Cluster:
    """Node 1 is the controller; it may be a broker as well. The others are brokers."""

    def __init__(self, directory: Path, roles: dict[int, str]) -> None:
        self.directory, self.roles = directory, roles
        self.fatal: list[BaseException] = []
        ports = free_ports(len(roles) + 1)
        self.controller_port = ports.pop()
        self.configs = {id: self._config(id, port) for id, port in zip(roles, ports, strict=True)}
        self.nodes: dict[int, Node] = {}

    def _config(self, node_id: int, port: int) -> ServerConfig:
        controller = f"CONTROLLER://{HOST}:{self.controller_port}"
        listeners = {"broker": f"PLAINTEXT://{HOST}:{port}", "controller": controller}
        properties = {
            "process.roles": self.roles[node_id],
            "node.id": str(node_id),
            "listeners": ",".join(listeners[role] for role in self.roles[node_id].split(",")),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
            "log.dirs": str(self.directory / f"node-{node_id}"),
        } | SMALL
        config = load_server_config("\n".join(f"{key}={value}" for key, value in properties.items()))
        format_directories(
            OsDisk(),
            config,
            "c",
            BOOTSTRAP_FEATURES,
            lambda: Uuid(draw(16)),
            0,
            ignore_formatted=True,
        )
        return config

    async def start(self, *ids: int) -> None:
        for id in ids:
            world = make_world(self.configs[id], self.fatal.append)
            world = replace(world, rpc_transport=partial(CuttableTransport, world.rpc_transport))
            self.nodes[id] = Node(self.configs[id], world)
            await self.nodes[id].start()

    async def stop(self, *ids: int) -> None:
        for id in ids:
            await self.nodes.pop(id).stop()

    def image(self, id: int = 1) -> MetadataImage:
        return self.nodes[id].loader.image

    def log_start_offset(self, id: int) -> int:
        return self.nodes[id].log.log_start_offset

    def log_end_offset(self, id: int) -> int:
        return self.nodes[id].log.log_end_offset

    def files(self, id: int, suffix: str) -> list[str]:
        directory = self.directory / f"node-{id}" / "__cluster_metadata-0"
        return sorted(path.name for path in directory.iterdir() if path.name.endswith(suffix))

    async def forward(self, api_key: ApiKey, request: Request[M], version: int) -> M:
        controller = self.nodes[1].controller
        assert controller is not None
        body = request.encode(version)
        answer = await controller.forward(RequestContext(), api_key, version, body, 10_000)
        return request.RESPONSE.decode(answer, version)

    async def create(self, *names: str, broker_id: int) -> None:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=[broker_id])
                    for index in range(3)
                ],
            )
            for name in names
        ]
        answer = await self.forward(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=topics), 7)
        assert [topic.error_code for topic in answer.topics] == [0] * len(names)

    async def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        answer = await self.forward(ApiKey.DELETE_TOPICS, request, 6)
        assert [topic.error_code for topic in answer.responses] == [0]

    @contextmanager
    def cut_off(self, id: int) -> Iterator[None]:
        """Let the node's calls to other nodes fail for some time."""

        transport = as_type(self.nodes[id].transport, CuttableTransport)
        transport.is_cut = True
        yield
        transport.is_cut = False

    def served(self, id: int) -> set[tuple[str, int, Uuid]]:
        """Replicas at a broker: topic, partition, topic id."""
        broker = self.nodes[id].broker
        assert broker is not None
        return {(p.topic, p.index, p.topic_id) for p in broker.data.table}

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert self.fatal == []
            await asyncio.sleep(0.005)


def run(cluster: Cluster, scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await scenario(cluster)
        finally:
            await cluster.stop(*reversed(list(cluster.nodes)))
        assert cluster.fatal == []

    asyncio.run(main())


def test_node_that_starts_from_a_snapshot_has_everything_and_no_old_segment(tmp_path: Path) -> None:
    made = Cluster(tmp_path, {1: "broker,controller"})

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        for number in range(30):
            await cluster.create(f"t{number}", broker_id=1)
        await cluster.until(lambda: cluster.log_start_offset(1) > 30)
        await cluster.delete("t3")
        before, start_offset = cluster.image(), cluster.log_start_offset(1)
        await cluster.stop(1)
        assert cluster.files(1, ".checkpoint") != []
        assert min(cluster.files(1, ".log")) > "00000000000000000000.log"

        await cluster.start(1)
        after = cluster.image()
        assert cluster.log_start_offset(1) >= start_offset
        assert after.offset > before.offset
        assert after.topic_ids == before.topic_ids and len(after.topic_ids) == 29
        assert after.features == before.features
        assert (
            after.topic("t7") is not None and len(after.topics_by_id[after.topic_ids["t7"]].partitions) == 3
        )
        assert after.brokers[1].epoch > before.brokers[1].epoch
        controller = cluster.nodes[1].controller
        assert controller is not None and controller.committed_image is after
        await cluster.create("one-more", broker_id=1)

    run(made, scenario)


def test_broker_that_was_down_for_a_long_time_returns_through_a_fetched_snapshot(tmp_path: Path) -> None:
    made = Cluster(tmp_path, {1: "controller", 2: "broker", 3: "broker"})

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.create("kept", "gone", "renewed", broker_id=2)
        await cluster.until(lambda: cluster.image(2).topic("renewed") is not None)
        old_id = cluster.image(2).topic_ids["renewed"]
        end_offset = cluster.log_end_offset(2)
        await cluster.stop(2)

        await cluster.delete("gone")
        await cluster.delete("renewed")
        for number in range(30):
            await cluster.create(f"t{number}", broker_id=3)
        await cluster.until(lambda: cluster.log_start_offset(1) > end_offset + 10)

        await cluster.start(2)
        await cluster.create("renewed", broker_id=2)
        await cluster.until(lambda: cluster.image(2).topic("renewed") is not None)
        assert cluster.log_start_offset(2) > end_offset
        image = cluster.image(2)
        assert image.topic("gone") is None and image.topic_ids["renewed"] != old_id
        assert len(image.topic_ids) == 32
        await cluster.until(lambda: cluster.image(2).offset >= cluster.image(1).offset)
        assert cluster.image(2).topics_by_id == cluster.image(1).topics_by_id
        leaders = {
            partition.leader
            for partition in cluster.image(2).topics_by_id[image.topic_ids["kept"]].partitions
        }
        assert leaders == {2}
        ids = image.topic_ids
        served = {(name, index, ids[name]) for name in ("kept", "renewed") for index in range(3)}
        await cluster.until(lambda: cluster.served(2) == served)

    run(made, scenario)


@pytest.mark.parametrize("node_id", [1, 2])
def test_every_node_writes_its_own_snapshots(tmp_path: Path, node_id: int) -> None:
    made = Cluster(tmp_path, {1: "controller", 2: "broker"})

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        for number in range(20):
            await cluster.create(f"t{number}", broker_id=2)
        await cluster.until(lambda: cluster.log_start_offset(node_id) > 20)
        assert cluster.files(node_id, ".checkpoint") != []

    run(made, scenario)


def test_running_broker_that_missed_records_gets_the_difference_to_a_snapshot(tmp_path: Path) -> None:
    made = Cluster(tmp_path, {1: "controller", 2: "broker", 3: "broker"})

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.create("kept", "gone", "renewed", broker_id=2)
        await cluster.until(lambda: len(cluster.served(2)) == 9)
        end_offset = cluster.log_end_offset(2)
        with cluster.cut_off(2):
            await cluster.delete("gone")
            await cluster.delete("renewed")
            await cluster.create("renewed", "new", broker_id=2)
            for number in range(30):
                await cluster.create(f"t{number}", broker_id=3)
            await cluster.until(lambda: cluster.log_start_offset(1) > end_offset + 10)
            assert cluster.log_end_offset(2) < end_offset + 10
        ids = cluster.image(1).topic_ids
        served = {(name, index, ids[name]) for name in ("kept", "renewed", "new") for index in range(3)}
        await cluster.until(lambda: cluster.served(2) == served)
        assert cluster.log_start_offset(2) > end_offset
        await cluster.until(lambda: cluster.image(2).offset >= cluster.image(1).offset)
        assert cluster.image(2).topics_by_id == cluster.image(1).topics_by_id

    run(made, scenario)
