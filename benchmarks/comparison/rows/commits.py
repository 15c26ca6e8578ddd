"""Committed offsets.

OffsetCommit of groups without members, `offsets.topic.replication.factor=1`; each connection has a group of
its own and one request in flight. Per request. Before it is measured the load runs once, and for 20 s on a
new process.
"""

from dataclasses import dataclass
from functools import partial

from comparison.cluster import Cluster
from comparison.frames import connect
from comparison.load import load
from comparison.requests import check, has_coordinator
from comparison.turn import Figures, Turn

from pykraft.kafka_protocol.messages import offsets
from pykraft.testing.processes.topics import is_in_sync, request_topic
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient, decode_answer, frame_of

_TOPIC = "commits"
_VERSION = 7
_LOAD_TIMEOUT_S = 300


@dataclass(frozen=True)
class _Kind:
    name: str
    connections: int
    partitions: int
    requests: int


_KINDS = (
    _Kind("1 client, 1 partition", 1, 1, 20_000),
    _Kind("100 clients, 1 partition", 100, 1, 50_000),
    _Kind("1 client, 1,000 partitions", 1, 1_000, 500),
)


def run(turn: Turn) -> None:
    with turn.cluster(1) as cluster:
        client = connect(cluster.port)
        partitions = max((kind.partitions for kind in _KINDS if turn.wants(kind.name)), default=1)
        request_topic(client, _TOPIC, partitions, 1)
        wait_until(f"topic {_TOPIC}", lambda: is_in_sync(client, [_TOPIC], 1))
        for kind in _KINDS:
            turn.row(kind.name, partial(_measure, turn, cluster, kind))


def _measure(turn: Turn, cluster: Cluster, kind: _Kind, figures: Figures) -> None:
    groups = [f"group-{number}" for number in range(kind.connections)]
    client = connect(cluster.port)
    for group in groups:
        wait_until_loaded(client, group)
    frames = [frame_of(commit_request(group, kind.partitions), _VERSION) for group in groups]
    count = max(kind.connections, turn.scaled(kind.requests))
    with load(cluster.port, frames, check_committed) as clients:
        turn.warm_up(cluster, lambda: clients.run(count))
        figures.per_request(cluster.cost(lambda: clients.run(count)), count)


def wait_until_loaded(client: WireClient, group: str) -> None:
    wait_until(f"the coordinator of {group}", lambda: has_coordinator(client, group))

    def is_committed() -> bool:
        answer = client.call(commit_request(group, 1), _VERSION)
        return bool(answer.topics[0].partitions[0].error_code == 0)

    wait_until(f"{group} to be loaded", is_committed, _LOAD_TIMEOUT_S)


def commit_request(group: str, partitions: int) -> offsets.OffsetCommitRequest:
    committed = [
        offsets.OffsetCommitRequestPartition(partition_index=index, committed_offset=7)
        for index in range(partitions)
    ]
    topic = offsets.OffsetCommitRequestTopic(name=_TOPIC, partitions=committed)
    return offsets.OffsetCommitRequest(group_id=group, topics=[topic])


def check_committed(frame: bytes) -> None:
    answer = decode_answer(offsets.OffsetCommitResponse, _VERSION, frame)
    for partition in answer.topics[0].partitions:
        check(partition.error_code, "OffsetCommit")
