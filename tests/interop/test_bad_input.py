"""What a broken or hostile peer may send to a real node: it gets Kafka's error or loses its connection.

All the while a well-behaved producer goes on (``bystander``): nobody else may notice. The server logs at most
one line for each broken connection, never a traceback, and does not grow.
"""

from __future__ import annotations

import contextlib
import importlib.util
import random
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from pykraft.broker.apis.table import make_apis
from pykraft.jepsen_like.awaiting import PATIENCE_S, wait_until
from pykraft.jepsen_like.process_cluster import ProcessCluster
from pykraft.kafka_protocol.api_keys import ApiKey, request_class, response_class
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from pykraft.kafka_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykraft.kafka_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykraft.kafka_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykraft.kafka_protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pykraft.kafka_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from pykraft.kafka_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykraft.kafka_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.kafka_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykraft.kafka_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykraft.kafka_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch

pytestmark = pytest.mark.interop

SEED = 20_26
CONNECTIONS = 2000
MAX_GROWTH_BYTES = 100 * 1024 * 1024
MAX_FRAME_BYTES = 100 * 1024 * 1024
TIMEOUT_S = PATIENCE_S
SERVED = [
    (api.key, version) for api in make_apis() for version in range(api.min_version, api.max_version + 1)
]
every_version = pytest.mark.parametrize(
    "api_key", sorted({key for key, _ in SERVED}), ids=lambda api_key: api_key.name
)
# A well-formed request of these may wait for others, or for data, as long as it asks for.
MAY_WAIT = {ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.PRODUCE}


class Peer:
    """A bare connection to the broker."""

    def __init__(self, cluster: ProcessCluster) -> None:
        address = cluster.addresses[1]
        self.socket = socket.create_connection((address.host, address.port), TIMEOUT_S)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        # The broker may have closed the connection half-way through.
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def send_frame(self, frame: bytes) -> None:
        self.send(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        """One frame; None once the broker has closed the connection. TimeoutError if neither happens."""
        size = self._exactly(4)
        return None if size is None else self._exactly(struct.unpack(">i", size)[0])

    def call(self, request: Any, version: int) -> Any:
        """Send a request and decode its answer, whole."""
        self.send_frame(encode_request(request, version, 7, "peer"))
        frame = self.receive()
        assert frame is not None, f"connection closed instead of an answer to {request}"
        return decode_answer(request.API_KEY, version, frame)

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return data


def decode_answer(api_key: int, version: int, frame: bytes) -> Any:
    _, body_at = decode_response_header(ApiKey(api_key), version, frame)
    return response_class(ApiKey(api_key)).decode(frame[body_at:], version)


def log_of(cluster: ProcessCluster) -> str:
    return cluster.nodes[1].output_file.read_text("utf-8", "replace")


def memory_bytes(cluster: ProcessCluster) -> int:
    """The resident memory of the server process."""
    process = cluster.nodes[1]._process
    assert process is not None
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024


def open_files(cluster: ProcessCluster) -> int:
    process = cluster.nodes[1]._process
    assert process is not None
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


class Bystander:
    """A producer that sends a record every 10 ms from a thread of its own."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.delivered = 0
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "linger.ms": 0,
                "retries": 0,
                "message.timeout.ms": 60_000,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self._producer.produce("bystander", b"alive", on_delivery=self._note)
            self._producer.poll(0)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error.str())
        self.delivered += 1

    def check(self) -> None:
        """It goes on, and never failed."""
        goal = self.delivered + 2
        arrived = "the bystander's records to arrive"
        wait_until(arrived, lambda: self.delivered >= goal, TIMEOUT_S, interval_s=0.005)
        assert self.errors == []

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert self._producer.flush(PATIENCE_S) == 0
        assert self.errors == []


@pytest.fixture(scope="module")
def bystander(single: ProcessCluster) -> Iterator[Bystander]:
    bystander = Bystander(single.bootstrap_servers)
    yield bystander
    bystander.stop()


@pytest.fixture(autouse=True)
def unharmed(
    single: ProcessCluster, bystander: Bystander, no_tracebacks: Callable[[ProcessCluster], None]
) -> Iterator[None]:
    """Every test here: others go on, no traceback, and the server does not grow."""
    bystander.check()
    before = memory_bytes(single)
    yield
    bystander.check()
    no_tracebacks(single)
    assert single.nodes[1].unordered_exit is None
    grown = memory_bytes(single) - before
    assert grown < MAX_GROWTH_BYTES, f"grown by {grown / 2**20:.0f} MiB"


@pytest.fixture(scope="module")
def generator() -> Any:
    """The seeded value generator of the codec's tests."""
    file = Path(__file__).parents[1] / "kafka_protocol" / "conftest.py"
    spec = importlib.util.spec_from_file_location("kafka_protocol_values", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Generator


@pytest.mark.parametrize("size", [-1, -(2**31), 0, MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_impossible_frame_size_closes_the_connection_with_one_line_of_log(
    single: ProcessCluster, size: int
) -> None:
    lines = log_of(single).count("\n")
    with Peer(single) as peer:
        assert peer.call(ApiVersionsRequest(), 0).error_code == 0
        peer.send(struct.pack(">i", size) + b"whatever follows")
        assert peer.receive() is None
    assert log_of(single).count("\n") - lines == 1
    assert str(size) in log_of(single).splitlines()[-1]


def test_http_request_closes_the_connection(single: ProcessCluster) -> None:
    with Peer(single) as peer:
        peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert peer.receive() is None


def test_frame_that_arrives_byte_by_byte_is_answered(single: ProcessCluster) -> None:
    frame = encode_request(ApiVersionsRequest(), 0, 7, "slow")
    with Peer(single) as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in struct.pack(">i", len(frame)) + frame:
            peer.send(bytes([byte]))
        answer = peer.receive()
        assert answer is not None
        assert decode_answer(ApiKey.API_VERSIONS, 0, answer).error_code == 0


def test_thousands_of_connections_that_never_finish_a_frame_cost_little(
    single: ProcessCluster, bystander: Bystander
) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CONNECTIONS, soft // 2 - 200)
    assert count > 100, f"the limit of {soft} open files leaves no room for this test"
    files, memory = open_files(single), memory_bytes(single)
    with contextlib.ExitStack() as stack:
        for number in range(count):
            peer = stack.enter_context(Peer(single))
            # The largest frame that is allowed, and next to nothing of it; some send part of the size only.
            unfinished = struct.pack(">i", MAX_FRAME_BYTES) + b"x" * (number % 3 * 500)
            peer.send(unfinished if number % 5 else unfinished[:2])
        wait_until("all connections to be taken", lambda: open_files(single) >= files + count, PATIENCE_S)
        bystander.check()
        with Peer(single) as peer:
            assert peer.call(ApiVersionsRequest(), 0).error_code == 0
        grown = memory_bytes(single) - memory
    assert grown < MAX_GROWTH_BYTES, f"{count} connections took {grown / 2**20:.0f} MiB"
    wait_until("all connections to be given up", lambda: open_files(single) <= files + 10, PATIENCE_S)


def test_pipelined_requests_without_a_reader_do_not_pile_up(single: ProcessCluster) -> None:
    request = encode_request(ApiVersionsRequest(), 0, 7, "deaf")
    flood = (struct.pack(">i", len(request)) + request) * 1000
    with Peer(single) as peer:
        peer.socket.settimeout(0.5)
        sent = 0
        # The broker must stop reading at some point: then sending blocks.
        with contextlib.suppress(TimeoutError):
            while sent < 200 * 1024 * 1024:
                sent += peer.socket.send(flood)
        assert sent < 200 * 1024 * 1024


@pytest.mark.parametrize("api_key", [-1, 4, 7, 52, 999, 32767])
def test_unknown_api_closes_the_connection(single: ProcessCluster, api_key: int) -> None:
    with Peer(single) as peer:
        peer.send_frame(struct.pack(">hhih", api_key, 0, 7, -1))
        assert peer.receive() is None


@pytest.mark.parametrize(
    # The exception is answered in version 0: see below.
    "api_key",
    sorted({key for key, _ in SERVED} - {ApiKey.API_VERSIONS}),
    ids=lambda api_key: api_key.name,
)
def test_version_that_is_not_served_closes_the_connection(single: ProcessCluster, api_key: ApiKey) -> None:
    versions = [version for key, version in SERVED if key is api_key]
    for version in {min(versions) - 1, max(versions) + 1, 32767, -32768}:
        with Peer(single) as peer:
            peer.send_frame(struct.pack(">hhih", api_key, version, 7, -1) + b"\0" * 30)
            assert peer.receive() is None, version


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_unknown_version_of_api_versions_is_answered_in_version_0(
    single: ProcessCluster, version: int
) -> None:
    with Peer(single) as peer:
        peer.send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 7, -1) + b"\0\x04abc\x04def\0")
        frame = peer.receive()
        assert frame is not None
        assert frame[:4] == struct.pack(">i", 7)
        answer = ApiVersionsResponse.decode(frame[4:], 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        served = {item.api_key: item.max_version for item in answer.api_keys}
        assert served[ApiKey.API_VERSIONS] == 4
        named = ApiVersionsRequest(client_software_name="peer", client_software_version="1")
        assert peer.call(named, 4).error_code == 0
        assert peer.call(ApiVersionsRequest(), 4).error_code == ErrorCode.INVALID_REQUEST


def expect_sane_outcome(cluster: ProcessCluster, api_key: ApiKey, version: int, body: bytes) -> None:
    """Send a body: malformed ones end the connection, the others are answered well-formed or wait."""
    tagged = b"\0" if version >= request_class(api_key).FLEXIBLE_FROM else b""
    header = struct.pack(">hhih", api_key, version, 7, 4) + b"fuzz" + tagged
    try:
        request_class(api_key).decode_from(body, 0, version)
        well_formed = True
    except ProtocolError:
        well_formed = False
    with Peer(cluster) as peer:
        if well_formed and api_key in MAY_WAIT:
            peer.socket.settimeout(0.05)
        peer.send_frame(header + body)
        try:
            frame = peer.receive()
        except TimeoutError:
            assert well_formed and api_key in MAY_WAIT, f"{api_key.name} v{version}: no outcome for {body!r}"
            return
    if frame is not None:
        assert frame[:4] == struct.pack(">i", 7)
        answer = decode_answer(api_key, version, frame)
        error = getattr(answer, "error_code", 0)
        assert error != ErrorCode.UNKNOWN_SERVER_ERROR, f"{api_key.name} v{version}: {answer} for {body!r}"
    else:
        assert not well_formed or api_key in MAY_WAIT, f"{api_key.name} v{version} closed for {body!r}"


@every_version
def test_truncated_and_random_bodies_are_refused(
    single: ProcessCluster, generator: Any, api_key: ApiKey
) -> None:
    rng = random.Random(f"{SEED} {api_key.name}")
    for version in (version for key, version in SERVED if key is api_key):
        values = generator(f"{SEED} {api_key.name} {version}")
        body = values.message(request_class(api_key), version).encode(version)
        flipped = bytearray(body or b"\0")
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        for bad in (
            body[: rng.randrange(len(body) or 1)],
            body + rng.randbytes(3),
            rng.randbytes(rng.randrange(1, 120)),
            b"\xff" * 40,
            bytes(flipped),
        ):
            expect_sane_outcome(single, api_key, version, bad)


@every_version
def test_well_formed_nonsense_is_answered(single: ProcessCluster, generator: Any, api_key: ApiKey) -> None:
    for version in (version for key, version in SERVED if key is api_key):
        values = generator(f"{SEED} nonsense {api_key.name} {version}")
        for _ in range(3):
            body = values.message(request_class(api_key), version).encode(version)
            expect_sane_outcome(single, api_key, version, body)


def test_nonsense_about_topics_and_groups_that_exist_is_answered(
    single: ProcessCluster, fresh: Callable[[str], str], generator: Any
) -> None:
    topic, group, member = fresh("victim"), fresh("group"), "m"
    single.create_topic(topic, 2, 1)
    words = [topic, group, member, "", "range", "uniform", "consumer", "retention.ms", "100", "1"]
    with Peer(single) as peer:
        (described,) = peer.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
    blobs = [
        bytes(batch(b"a", b"b")),
        bytes(batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0)),
        b"",
    ]

    class Near(generator):  # type: ignore[misc]
        """Values that mostly mean something here."""

        def _scalar(self, kind: str, name: str) -> object:
            known: dict[str, list[object]] = {
                "string": [*words],
                "uuid": [described.topic_id, bytes(16)],
                "records": [*blobs],
                **{kind: [-2, -1, 0, 0, 1, 1, 2, 100] for kind in ("int8", "int16", "int32", "int64")},
            }
            if kind in known and self._rng.random() < 0.9:
                return self._rng.choice(known[kind])
            return super()._scalar(kind, name)

    rng = random.Random(SEED)
    values = Near(f"{SEED} near")
    for _ in range(2000):
        api_key, version = rng.choice(SERVED)
        request = values.message(request_class(api_key), version)
        for wait in ("timeout_ms", "max_wait_ms", "rebalance_timeout_ms"):
            if hasattr(request, wait):
                setattr(request, wait, rng.choice([-1, 0, 5]))
        if api_key is not ApiKey.DELETE_TOPICS:
            expect_sane_outcome(single, api_key, version, request.encode(version))


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (ApiKey.METADATA, 1, struct.pack(">i", 2**31 - 1)),
        (ApiKey.METADATA, 1, struct.pack(">i", -2)),
        (ApiKey.METADATA, 12, b"\xff\xff\xff\xff\x07"),
        (ApiKey.METADATA, 12, b"\xff" * 12),
        (ApiKey.PRODUCE, 3, struct.pack(">hhii", -1, -1, 1000, 2**31 - 1)),
        (ApiKey.PRODUCE, 9, b"\0" + struct.pack(">hi", -1, 1000) + b"\xff\xff\xff\xff\x0f"),
        (ApiKey.FETCH, 4, struct.pack(">iiiibi", -1, 0, 0, 1 << 20, 0, 2**31 - 1)),
        (ApiKey.FETCH, 12, struct.pack(">iiiibii", -1, 0, 0, 1 << 20, 0, 0, -1) + b"\xff\xff\xff\xff\x0f"),
        (ApiKey.CREATE_TOPICS, 2, struct.pack(">i", 2**31 - 1)),
        (ApiKey.OFFSET_COMMIT, 2, struct.pack(">h", 1) + b"g" + struct.pack(">ihqi", -1, 0, -1, 2**31 - 1)),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_counts_larger_than_the_bytes_left_end_the_connection(
    single: ProcessCluster, api_key: ApiKey, version: int, body: bytes
) -> None:
    tagged = b"\0" if version >= request_class(api_key).FLEXIBLE_FROM else b""
    with Peer(single) as peer:
        peer.send_frame(struct.pack(">hhih", api_key, version, 7, -1) + tagged + body)
        assert peer.receive() is None


def test_unknown_tagged_fields_are_skipped(single: ProcessCluster) -> None:
    header = struct.pack(">hhih", ApiKey.API_VERSIONS, 4, 7, -1) + b"\x01\x2a\x01z"
    body = b"\x02a\x02b" + b"\x01\x63\x03abc"  # a name, a version, and tag 99
    with Peer(single) as peer:
        peer.send_frame(header + body)
        frame = peer.receive()
        assert frame is not None
        assert decode_answer(ApiKey.API_VERSIONS, 4, frame).error_code == 0


def produce_error(peer: Peer, topic: str, records: bytes | None) -> tuple[ErrorCode, int]:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        ],
    )
    (partition,) = peer.call(request, 9).responses[0].partition_responses
    return ErrorCode(partition.error_code), partition.base_offset


def batch(*values: bytes, **settings: Any) -> bytearray:
    records = [RecordInput(key=None, value=value, timestamp_ms=1_700_000_000_000) for value in values]
    return bytearray(encode_batch(records, **settings))


def changed(data: bytearray, position: int, new: bytes, *, checksum: bool = True) -> bytes:
    """The batch with some bytes replaced and, if wanted, a CRC that fits again."""
    from crc32c import crc32c

    data[position : position + len(new)] = new
    if checksum:
        data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("bad crc", ErrorCode.CORRUPT_MESSAGE),
        ("cut short", ErrorCode.CORRUPT_MESSAGE),
        ("length beyond the end", ErrorCode.CORRUPT_MESSAGE),
        ("negative length", ErrorCode.CORRUPT_MESSAGE),
        ("old magic", ErrorCode.INVALID_RECORD),
        ("unknown magic", ErrorCode.INVALID_RECORD),
        ("two batches", ErrorCode.INVALID_RECORD),
        ("no batch", ErrorCode.INVALID_RECORD),
        ("null", ErrorCode.INVALID_RECORD),
        ("count without records", ErrorCode.INVALID_RECORD),
        ("a million records said to be in one", ErrorCode.INVALID_RECORD),
        ("records of nonsense", ErrorCode.INVALID_RECORD),
        ("nonsense in place of compressed records", ErrorCode.INVALID_RECORD),
        ("offset deltas 0 and 2", ErrorCode.INVALID_RECORD),
        ("base offset 5", ErrorCode.INVALID_RECORD),
        ("control batch", ErrorCode.INVALID_RECORD),
        ("unknown codec", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("garbage", ErrorCode.INVALID_RECORD),
    ],
)
def test_bad_record_batch_is_refused_by_its_error_and_the_next_good_one_is_taken(
    single: ProcessCluster, fresh: Callable[[str], str], what: str, error: ErrorCode
) -> None:
    bad: dict[str, bytes | None] = {
        "bad crc": changed(batch(b"v"), 17, b"\0\0\0\0", checksum=False),
        "cut short": bytes(batch(b"v")[:-1]),
        "length beyond the end": changed(batch(b"v"), 8, struct.pack(">i", 1000)),
        "negative length": changed(batch(b"v"), 8, struct.pack(">i", -1)),
        "old magic": changed(batch(b"v"), 16, b"\x01"),
        "unknown magic": changed(batch(b"v"), 16, b"\x07"),
        "two batches": bytes(batch(b"v") + batch(b"w")),
        "no batch": b"",
        "null": None,
        "count without records": changed(batch(b"v"), 57, struct.pack(">i", 1_000_000)),
        "a million records said to be in one": changed(
            bytearray(changed(batch(b"v"), 57, struct.pack(">i", 1_000_000))), 23, struct.pack(">i", 999_999)
        ),
        "records of nonsense": changed(batch(bytes(100)), 61, b"\x7f" * 100),
        "nonsense in place of compressed records": changed(batch(b"v"), 21, struct.pack(">h", 4)),
        "offset deltas 0 and 2": changed(batch(b"v", b"w"), 61 + 8 + 3, b"\x04"),
        "base offset 5": changed(batch(b"v"), 0, struct.pack(">q", 5)),
        "control batch": changed(batch(b"v"), 21, struct.pack(">h", 0x20)),
        "unknown codec": changed(batch(b"v"), 21, struct.pack(">h", 7)),
        "garbage": random.Random(SEED).randbytes(300),
    }
    topic = fresh("records")
    with Peer(single) as peer:
        new = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        created = peer.call(CreateTopicsRequest(topics=[new], timeout_ms=10_000), 5)
        assert created.topics[0].error_code == 0
        wait_until(
            "the topic", lambda: produce_error(peer, topic, bytes(batch(b"a")))[0] is ErrorCode.NONE, 10
        )
        found, _ = produce_error(peer, topic, bad[what])
        assert found is error
        assert produce_error(peer, topic, bytes(batch(b"b"))) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "\u00e9", "a\0b", "x" * 250])
def test_illegal_topic_name_is_refused_wherever_it_is_given(single: ProcessCluster, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    with Peer(single) as peer:
        created = peer.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        assert created.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        (described,) = peer.call(request, 8).topics
        assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        found, _ = produce_error(peer, name, bytes(batch(b"v")))
        assert found in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
        assert all(item.name != name for item in peer.call(MetadataRequest(topics=None), 8).topics)


def test_absurd_partition_count_is_refused_at_once(
    single: ProcessCluster, fresh: Callable[[str], str]
) -> None:
    with Peer(single) as peer:
        for count in (2**31 - 1, 100_000, 0, -2):
            topic = CreatableTopic(name=fresh("huge"), num_partitions=count, replication_factor=1)
            answer = peer.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
            assert answer.topics[0].error_code != 0, count


MANY = 60_000
"""Items that fit into the largest request that is decoded, 2 MiB, with names of ten bytes."""


def _many_items() -> dict[str, tuple[Any, int]]:
    names = [f"nobody-{number:05}" for number in range(MANY)]
    partitions = [DescribeQuorumRequestPartitionData(partition_index=index) for index in range(-1, MANY)]
    return {
        "features": (
            UpdateFeaturesRequest(
                feature_updates=[FeatureUpdateKey(feature=name, max_version_level=-1) for name in names]
            ),
            1,
        ),
        "reassignments": (
            AlterPartitionReassignmentsRequest(
                topics=[
                    ReassignableTopic(
                        name="bystander",
                        partitions=[
                            ReassignablePartition(partition_index=index, replicas=[-1, 1])
                            for index in range(-1, MANY)
                        ],
                    )
                ]
            ),
            0,
        ),
        "elections": (
            ElectLeadersRequest(
                topic_partitions=[TopicPartitions(topic="bystander", partitions=[0, -1] * MANY)]
            ),
            2,
        ),
        "configurations": (
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=2,
                        resource_name="bystander",
                        configs=[AlterableConfig(name=name, value="1") for name in names],
                    )
                ]
            ),
            1,
        ),
        "directories": (
            DescribeLogDirsRequest(
                topics=[
                    DescribableLogDirTopic(topic="bystander", partitions=[number]) for number in range(MANY)
                ]
            ),
            4,
        ),
        "quorum": (
            DescribeQuorumRequest(
                topics=[
                    DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=partitions)
                ]
            ),
            2,
        ),
        "voters": (
            AddRaftVoterRequest(
                voter_id=9,
                voter_directory_id=bytes(range(16)),
                listeners=[Listener(name=name, host="h", port=1) for name in names],
            ),
            1,
        ),
    }


@pytest.mark.parametrize("kind", sorted(_many_items()))
def test_as_many_items_as_fit_into_a_request_are_answered_in_time_and_change_nothing(
    single: ProcessCluster, kind: str
) -> None:
    request, version = _many_items()[kind]
    quorum = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopicData(
                topic_name="__cluster_metadata",
                partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
            )
        ]
    )
    topics = MetadataRequest(topics=[MetadataRequestTopic(name="bystander")])
    with Peer(single) as peer:
        before = peer.call(topics, 12).topics
        answer = peer.call(request, version)
        assert peer.call(topics, 12).topics == before
        (described,) = peer.call(quorum, 2).topics
        assert described.partitions[0].leader_epoch == 1
    assert getattr(answer, "error_code", 0) != ErrorCode.UNKNOWN_SERVER_ERROR


def test_refusal_that_repeats_a_very_long_name_leaves_the_rest_of_the_answer(single: ProcessCluster) -> None:
    longest = "x" * 32_767
    with Peer(single) as peer:
        elect = ElectLeadersRequest(
            topic_partitions=[
                TopicPartitions(topic=longest, partitions=[0]),
                TopicPartitions(topic="bystander", partitions=[0]),
            ]
        )
        answer = peer.call(elect, 1)
        assert answer.error_code == ErrorCode.NONE
        assert {
            item.topic: item.partition_result[0].error_code for item in answer.replica_election_results
        } == {
            longest: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "bystander": ErrorCode.ELECTION_NOT_NEEDED,
        }
        move = AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="bystander",
                    partitions=[
                        ReassignablePartition(partition_index=0, replicas=[1] * 50_000),
                        ReassignablePartition(partition_index=1, replicas=None),
                    ],
                )
            ]
        )
        moved = peer.call(move, 0)
        assert moved.error_code == ErrorCode.NONE
        assert [item.error_code for item in moved.responses[0].partitions] == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
