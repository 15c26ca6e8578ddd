"""What a peer on the CONTROLLER listener may send that belongs to nobody: every call of both services.

It knows the cluster's id and may say anything else: bytes that are no message, replicas and brokers that do
not exist, offsets, positions, sizes and lists without sense. It is answered with an error, and the quorum
goes on under the same leader, with nothing new in the metadata.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from pykraft.jepsen_like.awaiting import PATIENCE_S
from pykraft.jepsen_like.process_cluster import ProcessCluster
from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.metadata_log.pb import controller_pb2
from pykraft.quorum.pb import quorum_pb2

pytestmark = pytest.mark.interop

SEED = 853
CALLS = 1500
TIMEOUT_S = PATIENCE_S
NOBODY = [7, 8, -1, 2**31 - 1, -(2**31)]
EPOCHS = [-5, -1, 0, 1]
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
"""An observer need not be known to anybody."""


class Nonsense:
    """Messages whose fields mostly look like something."""

    def __init__(self, cluster_id: str) -> None:
        self.rng = random.Random(SEED)
        self._cluster_id = cluster_id

    def fill(self, message: Any) -> Any:
        for field in message.DESCRIPTOR.fields:
            repeated = field.is_repeated
            for _ in range(self.rng.randrange(4) if repeated else int(self.rng.random() < 0.85)):
                if field.type == FieldDescriptor.TYPE_MESSAGE:
                    inner = getattr(message, field.name)
                    self.fill(inner.add() if repeated else inner)
                elif repeated:
                    getattr(message, field.name).append(self._value(field))
                else:
                    setattr(message, field.name, self._value(field))
        return message

    def _value(self, field: FieldDescriptor) -> object:
        choose = self.rng.choice
        if field.name == "cluster_id":
            return choose([self._cluster_id] * 9 + ["another"])
        if field.name in ("id", "broker_id", "controller_id"):
            return choose(NOBODY)
        if field.name.endswith("epoch") and field.type == FieldDescriptor.TYPE_INT32:
            return choose(EPOCHS)
        if field.name in ("timeout_ms", "max_wait_ms"):
            return choose([-1, 0, 5])
        match field.type:
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
        raise AssertionError(f"{field.name} is of a type that this test does not know")


@pytest.fixture
def client(single: ProcessCluster) -> Iterator[AdminClient]:
    with AdminClient(single.bootstrap_servers) as client:
        yield client


def standing(client: AdminClient) -> tuple[object, ...]:
    """Who leads and votes, and which brokers and topics there are."""
    quorum, cluster = client.describe_quorum(), client.describe_cluster()
    return (
        quorum.leader_id,
        quorum.leader_epoch,
        [voter.replica_id for voter in quorum.voters],
        sorted(broker.id for broker in cluster.brokers),
        client.list_topics(),
    )


def test_calls_of_nobody_are_refused_and_change_nothing(
    single: ProcessCluster, client: AdminClient, no_tracebacks: Callable[[ProcessCluster], None]
) -> None:
    before = standing(client)
    nonsense = Nonsense(client.describe_cluster().cluster_id)
    target = f"{single.addresses[1].host}:{single._controller_ports[1]}"
    answered: Counter[str] = Counter()
    with grpc.insecure_channel(target) as channel:
        for _ in range(CALLS):
            path, request, answer = nonsense.rng.choice(METHODS)
            garbage = nonsense.rng.random() < 0.1
            payload = (
                nonsense.rng.randbytes(nonsense.rng.randrange(80))
                if garbage
                else nonsense.fill(request()).SerializeToString()
            )
            reply = channel.unary_unary(path)(payload, timeout=TIMEOUT_S)
            code, name = answer.FromString(reply).error_code, path.rpartition("/")[2]
            assert code != ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: {payload!r}"
            assert code != ErrorCode.NONE or name in ANSWERED_ALL_THE_SAME, f"{name}: {payload!r}"
            answered[name] += 1
    assert len(answered) == len(METHODS)
    assert standing(client) == before
    no_tracebacks(single)
