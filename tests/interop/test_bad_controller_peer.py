"""A stranger on the CONTROLLER listener: every call of both services.

It knows the cluster's id and may send anything else: bytes that are no message, replicas and brokers that do
not exist, meaningless epochs, offsets, positions, sizes and lists. It is answered with an error, and the
quorum continues under the same leader, with nothing new in the metadata.

Or it pretends to be one of the nodes, floods, and holds as many resources as it can. Then leaders may resign
and brokers be fenced, but when it is gone the cluster works again, restarts included, and nothing has grown.
It neither claims that a voter has records that it does not have, nor uses commands of an administrator: every
client that reaches the listener may use these.
"""

import json
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, HOST
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.pb import controller_pb2
from pykraft.quorum.pb import quorum_pb2
from pykraft.runtime.address import Address
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S
from tests.interop.clusters import create_in_sync, own_cluster, refuse_tracebacks

P = TypeVar("P", bound=Message)

pytestmark = pytest.mark.interop

SEED = 853
CALLS = 1500
TIMEOUT_S = PATIENCE_S
NO_NODE = [7, 8, -1, 2**31 - 1, -(2**31)]
EPOCHS = [-5, -1, 0, 1, 2**30, 2**30 + 1, 2**31 - 2, 2**31 - 1]
INTEGERS = [-(2**31), -1, 0, 1, 7, 100, 2**31 - 1]
LONGS = [-(2**63), -1, 0, 1, 46, 2**40, 2**63 - 1]
TEXTS = ["", "h", "CONTROLLER", "PLAINTEXT", "metadata.version", "\0", "x" * 40_000]
METHODS = [
    (f"/{service.full_name}/{method.name}", getattr(module, method.input_type.name), answer)
    for module, name in ((quorum_pb2, "Quorum"), (controller_pb2, "Controller"))
    for service in (module.DESCRIPTOR.services_by_name[name],)
    for method in service.methods
    for answer in (getattr(module, method.output_type.name),)
]
ANSWERED_ALL_THE_SAME = {"Fetch"}
"""An observer need not be known to the cluster."""


def call_of(channel: grpc.Channel, path: str) -> "grpc.UnaryUnaryMultiCallable[bytes, bytes]":
    """A call whose request and answer are bytes."""
    return channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)


class Malformed:
    """Messages whose fields are mostly plausible."""

    def __init__(self, cluster_id: str) -> None:
        self.rng = random.Random(SEED)
        self._cluster_id = cluster_id

    def fill(self, message: P) -> P:
        for field in message.DESCRIPTOR.fields:
            repeated = field.is_repeated
            for _ in range(self.rng.randrange(4) if repeated else int(self.rng.random() < 0.85)):
                if field.type == FieldDescriptor.TYPE_MESSAGE:
                    inner = getattr(message, field.name)
                    self.fill(inner.add() if repeated else inner)
                elif repeated:
                    getattr(message, field.name).append(self._value(field.name, field.type))
                else:
                    setattr(message, field.name, self._value(field.name, field.type))
        return message

    def _value(self, name: str, kind: int) -> object:
        choose = self.rng.choice
        if name == "cluster_id":
            return choose([self._cluster_id] * 9 + ["another"])
        if name in ("id", "broker_id", "controller_id"):
            return choose(NO_NODE)
        if name.endswith("epoch") and kind == FieldDescriptor.TYPE_INT32:
            return choose(EPOCHS)
        if name in ("timeout_ms", "max_wait_ms"):
            return choose([-1, 0, 5, 5, 5, 2**31 - 1])
        match kind:
            case FieldDescriptor.TYPE_INT32:
                return choose(INTEGERS)
            case FieldDescriptor.TYPE_INT64:
                return choose(LONGS)
            case FieldDescriptor.TYPE_BOOL:
                return choose([False, True])
            case FieldDescriptor.TYPE_STRING:
                return choose(TEXTS)
            case FieldDescriptor.TYPE_BYTES:
                return choose([b"", b"x", bytes(16), b"1" * 16, self.rng.randbytes(16)])
        raise AssertionError(f"{name} is of a type that this test does not know")


@pytest.fixture
def client(single: Cluster) -> Iterator[AdminClient]:
    with AdminClient(single.bootstrap_servers) as client:
        yield client


def cluster_state(client: AdminClient) -> tuple[object, ...]:
    """The leader, the voters, the brokers and the topics."""
    quorum, cluster = client.describe_quorum(), client.describe_cluster()
    return (
        quorum.leader_id,
        quorum.leader_epoch,
        [voter.replica_id for voter in quorum.voters],
        sorted(broker.id for broker in cluster.brokers),
        client.list_topics(),
    )


def quorum_addresses(client: AdminClient) -> dict[int, Address]:
    """Where each controller listens to the others."""
    return {node: listeners["CONTROLLER"] for node, listeners in client.describe_quorum().nodes.items()}


def test_calls_of_unknown_clients_are_refused_and_change_nothing(
    single: Cluster, client: AdminClient
) -> None:
    before = cluster_state(client)
    malformed = Malformed(client.describe_cluster().cluster_id)
    target = str(quorum_addresses(client)[1])
    answered: Counter[str] = Counter()
    with grpc.insecure_channel(target) as channel:
        for _ in range(CALLS):
            path, request, answer = malformed.rng.choice(METHODS)
            garbage = malformed.rng.random() < 0.1
            payload = (
                malformed.rng.randbytes(malformed.rng.randrange(80))
                if garbage
                else malformed.fill(request()).SerializeToString()
            )
            reply = call_of(channel, path)(payload, timeout=TIMEOUT_S)
            code, name = answer.FromString(reply).error_code, path.rpartition("/")[2]
            assert code != ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: {payload!r}"
            assert code != ErrorCode.NONE or name in ANSWERED_ALL_THE_SAME, f"{name}: {payload!r}"
            answered[name] += 1
    assert len(answered) == len(METHODS)
    assert cluster_state(client) == before
    refuse_tracebacks(single)


# --- one that speaks as others ---------------------------------------------------------------------------

ROUNDS = 40
FLOOD = 60
IDLE_CONNECTIONS = 300
CALL_TIMEOUT_S = 5.0
MOST_GROWTH_BYTES = 200 << 20
HUGE = [2**31 - 1, 2**31 - 2, 2**30 + 1, 2**30, 2**29]
SERVICES = {
    name: f"/{module.DESCRIPTOR.package}.{name}/"
    for module, name in ((quorum_pb2, "Quorum"), (controller_pb2, "Controller"))
}


class ForgedPeer:
    """Draws calls in the name of the cluster's own nodes. ``epoch`` is the quorum's epoch at the start."""

    def __init__(self, cluster_id: str, epoch: int) -> None:
        self.rng = random.Random(SEED)
        self._cluster_id = cluster_id
        self._epoch = epoch

    def call_to(self, node_id: int) -> tuple[str, bytes]:
        """The path of a call, and its request."""
        draw = self.rng.choice(
            [self._vote, self._begin, self._end, self._fetch, self._register, self._beat, self._propose]
        )
        service, name, request = draw(node_id)
        return SERVICES[service] + name, request.SerializeToString()

    def _claimed(self, node_id: int) -> quorum_pb2.ReplicaKey:
        return quorum_pb2.ReplicaKey(id=self.rng.choice([id for id in (1, 2, 3) if id != node_id]))

    def _any_epoch(self) -> int:
        return self.rng.choice(HUGE * 4 + [self._epoch, self._epoch + 1, self._epoch + 100])

    def _quorum(
        self, name: str, request: Callable[..., Message], **fields: object
    ) -> tuple[str, str, Message]:
        return "Quorum", name, request(cluster_id=self._cluster_id, epoch=self._any_epoch(), **fields)

    def _vote(self, node_id: int) -> tuple[str, str, Message]:
        choose = self.rng.choice
        return self._quorum(
            "Vote",
            quorum_pb2.VoteRequest,
            candidate=self._claimed(node_id),
            voter=quorum_pb2.ReplicaKey(id=node_id),
            last_epoch=choose([0, self._epoch, 2**31 - 2]),
            last_offset=choose([0, 2**40, 2**63 - 1, -1]),
            pre_vote=choose([False, True]),
        )

    def _begin(self, node_id: int) -> tuple[str, str, Message]:
        choose = self.rng.choice
        address = quorum_pb2.Address(host=choose(["", HOST, "\0"]), port=choose([1, 2**31 - 1]))
        voter = quorum_pb2.ReplicaKey(id=node_id)
        return self._quorum(
            "BeginQuorumEpoch",
            quorum_pb2.BeginQuorumEpochRequest,
            leader=self._claimed(node_id),
            voter=voter,
            leader_address=address,
        )

    def _end(self, node_id: int) -> tuple[str, str, Message]:
        successors = [quorum_pb2.ReplicaKey(id=id) for id in range(self.rng.choice([0, 3, 30_000]))]
        return self._quorum(
            "EndQuorumEpoch",
            quorum_pb2.EndQuorumEpochRequest,
            leader=self._claimed(node_id),
            voter=quorum_pb2.ReplicaKey(id=node_id),
            preferred_successors=successors,
        )

    def _fetch(self, node_id: int) -> tuple[str, str, Message]:
        """A fetch that a leader never counts as an acknowledgement."""
        return self._quorum(
            "Fetch",
            quorum_pb2.FetchRequest,
            replica=self._claimed(node_id),
            fetch_offset=self.rng.choice([2**63 - 1, 2**62 + 1]),
            last_fetched_epoch=self.rng.choice([1, self._epoch]),
            max_wait_ms=2**31 - 1,
            max_bytes=2**31 - 1,
        )

    def _register(self, node_id: int) -> tuple[str, str, Message]:
        """A registration as the next process of a live broker, which it claims to be dead."""
        request = controller_pb2.RegisterBrokerRequest(
            cluster_id=self._cluster_id,
            broker_id=self.rng.choice([1, 2, 3]),
            incarnation_id=self.rng.randbytes(16),
            endpoints=[controller_pb2.Endpoint(name="P", host="h", port=1, security_protocol="PLAINTEXT")],
            features=[
                controller_pb2.Feature(name=it.name, min_level=it.min_level, max_level=it.max_level)
                for it in SUPPORTED_RANGES
            ],
            log_dirs=[self.rng.randbytes(16)],
            dead_incarnation_secrets=[self.rng.randbytes(16) for _ in range(self.rng.choice([1, 16, 5000]))],
        )
        return "Controller", "RegisterBroker", request

    def _beat(self, node_id: int) -> tuple[str, str, Message]:
        request = controller_pb2.BrokerHeartbeatRequest(
            broker_id=self.rng.choice([1, 2, 3]),
            broker_epoch=self.rng.randrange(60),
            current_metadata_offset=self.rng.choice([-1, 0, 2**40, 2**63 - 1]),
            want_fence=True,
            want_shut_down=self.rng.choice([False, True]),
        )
        return "Controller", "BrokerHeartbeat", request

    def _propose(self, node_id: int) -> tuple[str, str, Message]:
        changes = [
            controller_pb2.AlterPartitionPartition(index=index, leader_epoch=2**31 - 1)
            for index in range(1000)
        ]
        topic = controller_pb2.AlterPartitionTopic(topic_id=self.rng.randbytes(16), partitions=changes)
        request = controller_pb2.AlterPartitionRequest(
            broker_id=self.rng.choice([1, 2, 3]), broker_epoch=self.rng.randrange(60), topics=[topic]
        )
        return "Controller", "AlterPartition", request


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with own_cluster(3, FAST_FAILOVER) as cluster:
        yield cluster


def resident_bytes(cluster: Cluster) -> int:
    """Of the largest node."""
    sizes = []
    for pid in cluster.pids.values():
        status = Path(f"/proc/{pid}/status").read_text("ascii")
        sizes.append(int(status.partition("VmRSS:")[2].split()[0]) << 10)
    return max(sizes)


def written_epochs(cluster: Cluster) -> list[int]:
    files = [at / "__cluster_metadata-0" / "quorum-state" for at in cluster.log_dirs.values()]
    return [json.loads(file.read_text("utf-8"))["leaderEpoch"] for file in files]


def test_cluster_continues_after_a_flood_from_a_forged_peer(cluster: Cluster) -> None:
    create_in_sync(cluster, "before", 3)
    with AdminClient(cluster.bootstrap_servers) as client:
        forged_peer = ForgedPeer(client.describe_cluster().cluster_id, client.describe_quorum().leader_epoch)
    before_bytes = resident_bytes(cluster)
    flood(cluster, forged_peer)
    assert cluster.running_nodes == cluster.nodes
    assert resident_bytes(cluster) - before_bytes < MOST_GROWTH_BYTES
    cluster.wait_in_sync("before", PATIENCE_S)
    create_in_sync(cluster, "after", 3)
    assert max(written_epochs(cluster)) < 2**20
    for node in cluster.nodes:
        cluster.shut_down(node)
        cluster.restart(node)
        cluster.wait_in_sync("after", PATIENCE_S)


def flood(cluster: Cluster, forged_peer: ForgedPeer) -> None:
    """Dozens of calls, most of them without a waiting caller, and connections that send nothing."""
    with AdminClient(cluster.bootstrap_servers) as client:
        ports = {node: address.port for node, address in quorum_addresses(client).items()}
    with ExitStack() as held:
        for number in range(IDLE_CONNECTIONS):
            held.enter_context(
                socket.create_connection((HOST, ports[1 + number % len(ports)]), CALL_TIMEOUT_S)
            )
        channels = {
            node_id: held.enter_context(grpc.insecure_channel(f"{HOST}:{port}"))
            for node_id, port in ports.items()
        }
        huge = call_of(channels[1], SERVICES["Controller"] + "Forward")
        for _ in range(ROUNDS):
            calls = []
            for _ in range(FLOOD):
                node_id = forged_peer.rng.choice(list(channels))
                path, payload = forged_peer.call_to(node_id)
                calls.append(call_of(channels[node_id], path).future(payload, timeout=CALL_TIMEOUT_S))
            for call in calls[: FLOOD // 2]:
                call.cancel()
            refused = huge.future(bytes(9 << 20), timeout=CALL_TIMEOUT_S)
            assert refused.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED)
            for call in calls[FLOOD // 2 :]:
                call.exception()
