"""Kafka's protocol on a controller's own listeners: real nodes in this process, without any broker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.connection import Connection
from pykraft.kafka_client.errors import ConnectionFailedError
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import cluster, configs
from pykraft.kafka_protocol.messages import topics as topic_messages
from pykraft.kafka_protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
)
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.config import load_server_config
from pykraft.node.format import format_directories
from pykraft.node.node import Node
from pykraft.node.run import make_world
from pykraft.runtime.address import Address
from pykraft.runtime.free_ports import free_ports
from pykraft.runtime.os_disk import OsDisk

HOST = "127.0.0.1"
TIMEOUT_S = 60
DEADLINE_MS = 2**40
CONTROLLERS, BROKERS = 2, 1


draw = Random(1).randbytes


class Controllers:
    """Controllers with ids from 1 on; ``ports`` are those of their listeners for clients."""

    def __init__(self, directory: Path, count: int, properties: Mapping[str, str]) -> None:
        drawn = free_ports(2 * count)
        ids = range(1, count + 1)
        quorum_ports = dict(zip(ids, drawn[:count], strict=True))
        self.ports = dict(zip(ids, drawn[count:], strict=True))
        self.fatal: list[BaseException] = []
        self.nodes = []
        for node_id in ids:
            values = {
                "process.roles": "controller",
                "node.id": str(node_id),
                "listeners": f"QUORUM://{HOST}:{quorum_ports[node_id]},KAFKA://{HOST}:{self.ports[node_id]}",
                "controller.listener.names": "QUORUM,KAFKA",
                "controller.quorum.voters": ",".join(
                    f"{i}@{HOST}:{port}" for i, port in quorum_ports.items()
                ),
                "controller.quorum.election.timeout.ms": "300",
                "log.dirs": str(directory / str(node_id)),
            } | dict(properties)
            config = load_server_config("\n".join(f"{key}={value}" for key, value in values.items()))
            format_directories(OsDisk(), config, "c", BOOTSTRAP_FEATURES, lambda: Uuid(draw(16)), 0)
            self.nodes.append(Node(config, make_world(config, self.fatal.append)))

    async def connect(self, node_id: int) -> Connection:
        return await Connection.open(
            AsyncioNetwork(), Address(HOST, self.ports[node_id]), "test", DEADLINE_MS
        )

    async def describe(
        self, node_id: int, endpoint_type: int = CONTROLLERS, version: int = 2
    ) -> DescribeClusterResponse:
        connection = await self.connect(node_id)
        try:
            return await self.describe_by(connection, endpoint_type, version)
        finally:
            connection.close()

    async def describe_by(
        self, connection: Connection, endpoint_type: int = CONTROLLERS, version: int = 2
    ) -> DescribeClusterResponse:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        return await connection.call(request, DEADLINE_MS, max_version=version)

    async def wait_for_active(self) -> int:
        """The active controller, once every controller lists all of them."""
        while True:
            answers = [await self.describe(node_id) for node_id in self.ports]
            leaders = {answer.controller_id for answer in answers}
            if (
                -1 not in leaders
                and len(leaders) == 1
                and all(len(answer.brokers) == len(self.ports) for answer in answers)
            ):
                return int(leaders.pop())
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(directory: Path, count: int, **properties: str) -> AsyncIterator[Controllers]:
    controllers = Controllers(
        directory, count, {key.replace("_", "."): value for key, value in properties.items()}
    )
    async with AsyncExitStack() as stack:
        for node in controllers.nodes:
            stack.push_async_callback(node.stop)
            await node.start()
        yield controllers
    assert controllers.fatal == []


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario()

    asyncio.run(main())


def test_only_the_active_controller_decides_and_every_controller_names_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 3) as controllers:
            active = await controllers.wait_for_active()
            for node_id in controllers.ports:
                answer = await controllers.describe(node_id)
                assert answer.endpoint_type == CONTROLLERS and answer.cluster_id == "c"
                assert {one.broker_id: one.port for one in answer.brokers} == controllers.ports
                connection = await controllers.connect(node_id)
                features = await connection.call(
                    cluster.UpdateFeaturesRequest(
                        feature_updates=[
                            cluster.FeatureUpdateKey(
                                feature="group.version", max_version_level=1, upgrade_type=1
                            )
                        ]
                    ),
                    DEADLINE_MS,
                )
                topics = await connection.call(
                    topic_messages.CreateTopicsRequest(
                        topics=[topic_messages.CreatableTopic(name="t", num_partitions=1)], timeout_ms=5000
                    ),
                    DEADLINE_MS,
                )
                quorum = await connection.call(
                    cluster.DescribeQuorumRequest(
                        topics=[
                            cluster.DescribeQuorumRequestTopicData(
                                topic_name="__cluster_metadata",
                                partitions=[cluster.DescribeQuorumRequestPartitionData(partition_index=0)],
                            )
                        ]
                    ),
                    DEADLINE_MS,
                )
                connection.close()
                codes = [features.error_code, topics.topics[0].error_code, quorum.error_code]
                if node_id == active:
                    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE]
                    assert quorum.topics[0].partitions[0].leader_id == active
                else:
                    refused = ErrorCode.NOT_CONTROLLER
                    assert codes == [refused, refused, ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(scenario)


def test_controllers_describe_only_controllers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 1) as controllers:
            await controllers.wait_for_active()
            expected = {
                (CONTROLLERS, 1): ErrorCode.NONE,
                (BROKERS, 1): ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                (7, 2): ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                (BROKERS, 0): ErrorCode.INVALID_REQUEST,
            }
            for (endpoint_type, version), code in expected.items():
                answer = await controllers.describe(1, endpoint_type, version)
                assert answer.error_code == code, (endpoint_type, version)
                assert bool(answer.brokers) == (code == ErrorCode.NONE)

    run(scenario)


def test_the_listener_serves_what_it_advertises(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 1) as controllers:
            await controllers.wait_for_active()
            connection = await controllers.connect(1)
            served = {ApiKey(key).name for key in connection.versions}
            assert served == {
                *("API_VERSIONS", "CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS", "DESCRIBE_CONFIGS"),
                *("ALTER_CONFIGS", "INCREMENTAL_ALTER_CONFIGS", "ELECT_LEADERS", "DESCRIBE_QUORUM"),
                *("ALTER_PARTITION_REASSIGNMENTS", "LIST_PARTITION_REASSIGNMENTS", "UPDATE_FEATURES"),
                *("DESCRIBE_CLUSTER", "UNREGISTER_BROKER", "ADD_RAFT_VOTER", "REMOVE_RAFT_VOTER"),
            }
            assert connection.finalized_features["group.version"] == 1
            own = configs.DescribeConfigsResource(
                resource_type=4, resource_name="1", configuration_keys=["node.id"]
            )
            answer = await connection.call(
                configs.DescribeConfigsRequest(resources=[own]),
                DEADLINE_MS,
            )
            assert [(c.name, c.value) for c in answer.results[0].configs] == [("node.id", "1")]
            # A request that only brokers serve ends this connection, and no other.
            other = await controllers.connect(1)
            other.versions[ApiKey.METADATA] = (0, 13)
            with pytest.raises(ConnectionFailedError):
                await other.call(MetadataRequest(topics=None), DEADLINE_MS)
            again = await connection.call(DescribeClusterRequest(endpoint_type=CONTROLLERS), DEADLINE_MS)
            assert again.error_code == ErrorCode.NONE
            connection.close()

    run(scenario)


def test_connections_of_clients_are_bounded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 1, max_connections="2") as controllers:
            held = [await controllers.connect(1) for _ in range(2)]
            waiting = asyncio.ensure_future(controllers.connect(1))
            for _ in range(20):
                await controllers.describe_by(held[0])
            assert not waiting.done()
            held[1].close()
            for connection in (held[0], await waiting):
                await controllers.describe_by(connection)
                connection.close()

    run(scenario)
