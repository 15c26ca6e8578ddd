"""One node in a process of its own, alone in its cluster, as tests of processes need it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pykraft.jepsen_like.faults.clusters.process_cluster import run_cli
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pykraft.kafka_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.runtime.address import Address
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.systems import cli
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient

HOST = "127.0.0.1"
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
UP_TIMEOUT_S = 120.0
IS_UP = "is up at "
NOW_MS = time.time_ns() // 1_000_000
"""Records of another time might be too old to be kept."""
BATCH = encode_batch([RecordInput(None, b"value", (), NOW_MS)])


class LoneNode:
    """A formatted node; its data is in ``directory``. ``prefix`` precedes the command of its process."""

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        directory.mkdir(parents=True)
        broker, controller = free_ports(2)
        self.address = Address(HOST, broker)
        self.data = directory / "data"
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": str(self.data),
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        } | dict(properties or {})
        self.file = directory / "server.properties"
        self.file.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        command = (*prefix, *cli("server", "start", str(self.file)))
        self.process = NodeProcess(1, command, directory / "output", environment)
        self._earlier = 0

    @property
    def output(self) -> str:
        """What the newest process has printed."""
        return self.process.output_file.read_text(encoding="utf-8", errors="replace")[self._earlier :]

    def format(self) -> None:
        run_cli("storage", "format", "-t", CLUSTER, "-c", str(self.file))

    def start(self) -> bool:
        """Start the process; True if it came up, False if it ended instead."""
        self.begin_start()
        wait_until("a start or an end", lambda: IS_UP in self.output or self.has_ended, UP_TIMEOUT_S)
        return not self.has_ended

    def begin_start(self) -> None:
        if self.process.output_file.exists():
            self._earlier = len(self.process.output_file.read_text(encoding="utf-8", errors="replace"))
        self.process.start()

    @property
    def has_ended(self) -> bool:
        return not self.process.running

    def client(self) -> WireClient:
        return WireClient(self.address)


@contextmanager
def running(node: LoneNode) -> Iterator[LoneNode]:
    """Format and start a node; its process has ended when the context is left."""
    try:
        node.format()
        assert node.start(), node.output
        yield node
    finally:
        node.process.kill()


def create_topic(client: WireClient, name: str, configs: Mapping[str, str] | None = None) -> ErrorCode:
    """A topic with one partition."""
    given = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=given)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    return ErrorCode(client.call(request, 7).topics[0].error_code)


def produce_request(topic: str, batch: bytes = BATCH) -> ProduceRequest:
    """One batch for partition 0."""
    partitions = [PartitionProduceData(index=0, records=batch)]
    topics = [TopicProduceData(name=topic, partition_data=partitions)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)


def fetch_request(topic: str, offset: int, wait_ms: int = 0) -> FetchRequest:
    """From partition 0."""
    partitions = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic=topic, partitions=partitions)]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics)


def delete_topic(client: WireClient, name: str) -> ErrorCode:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    return ErrorCode(client.call(request, 6).responses[0].error_code)


def produce(client: WireClient, topic: str, batch: bytes = BATCH) -> ErrorCode:
    answer = client.call(produce_request(topic, batch), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def wait_until_led(client: WireClient, topic: str) -> None:
    """Until the topic takes records."""
    wait_until(f"{topic} is led", lambda: produce(client, topic) is ErrorCode.NONE, 60)
