"""Bodies that a broken or hostile peer may send to a real node: Kafka's error, or the connection ends."""

import random
import struct
from collections.abc import Callable

import pytest

from pykraft.broker.apis.table import make_apis
from pykraft.kafka_protocol.api_keys import ApiKey, request_class
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.cluster import ApiVersionsResponse, MetadataRequest, MetadataRequestTopic
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.testing import Cluster
from pykraft.testing.processes.wire_client import decode_answer
from tests.interop.peer import SEED, Peer, batch
from tests.kafka_protocol.values import Generator

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("unharmed")]

SERVED = [
    (api.key, version) for api in make_apis() for version in range(api.min_version, api.max_version + 1)
]

every_version = pytest.mark.parametrize(
    "api_key", sorted({key for key, _ in SERVED}), ids=lambda api_key: api_key.name
)

# A well-formed request to one of these APIs may wait for others, or for data, as long as it asks for.
MAY_WAIT = {ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.PRODUCE}


@pytest.mark.parametrize(
    # The exception is answered in version 0: see below.
    "api_key",
    sorted({key for key, _ in SERVED} - {ApiKey.API_VERSIONS}),
    ids=lambda api_key: api_key.name,
)
def test_version_that_is_not_served_closes_the_connection(single: Cluster, api_key: ApiKey) -> None:
    versions = [version for key, version in SERVED if key is api_key]
    for version in {min(versions) - 1, max(versions) + 1, 32767, -32768}:
        with Peer(single) as peer:
            peer.send_frame(struct.pack(">hhih", api_key, version, 7, -1) + b"\0" * 30)
            assert peer.receive() is None, version


def expect_sane_outcome(cluster: Cluster, api_key: ApiKey, version: int, body: bytes) -> None:
    """Send a body: malformed ones end the connection, the others get a well-formed answer or wait."""
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
        answer = decode_answer(request_class(api_key).RESPONSE, version, frame)
        error = getattr(answer, "error_code", 0)
        assert error != ErrorCode.UNKNOWN_SERVER_ERROR, f"{api_key.name} v{version}: {answer} for {body!r}"
    else:
        assert not well_formed or api_key in MAY_WAIT, f"{api_key.name} v{version} closed for {body!r}"


@every_version
def test_truncated_and_random_bodies_are_refused(single: Cluster, api_key: ApiKey) -> None:
    rng = random.Random(f"{SEED} {api_key.name}")
    for version in (version for key, version in SERVED if key is api_key):
        values = Generator(f"{SEED} {api_key.name} {version}")
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
def test_well_formed_random_bodies_are_answered(single: Cluster, api_key: ApiKey) -> None:
    for version in (version for key, version in SERVED if key is api_key):
        values = Generator(f"{SEED} nonsense {api_key.name} {version}")
        for _ in range(3):
            body = values.message(request_class(api_key), version).encode(version)
            expect_sane_outcome(single, api_key, version, body)


def test_random_bodies_about_existing_topics_and_groups_are_answered(
    single: Cluster, fresh: Callable[[str], str]
) -> None:
    topic, group, member = fresh("victim"), fresh("group"), "m"
    single.create_topic(topic, 2)
    words = [topic, group, member, "", "range", "uniform", "consumer", "retention.ms", "100", "1"]
    with Peer(single) as peer:
        about = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        (described,) = peer.call(about, 12).topics
    blobs = [
        bytes(batch(b"a", b"b")),
        bytes(batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0)),
        b"",
    ]

    class Near(Generator):
        """Values that are mostly meaningful for this cluster."""

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
    single: Cluster, api_key: ApiKey, version: int, body: bytes
) -> None:
    tagged = b"\0" if version >= request_class(api_key).FLEXIBLE_FROM else b""
    with Peer(single) as peer:
        peer.send_frame(struct.pack(">hhih", api_key, version, 7, -1) + tagged + body)
        assert peer.receive() is None


def test_unknown_tagged_fields_are_skipped(single: Cluster) -> None:
    header = struct.pack(">hhih", ApiKey.API_VERSIONS, 4, 7, -1) + b"\x01\x2a\x01z"
    body = b"\x02a\x02b" + b"\x01\x63\x03abc"  # a name, a version, and tag 99
    with Peer(single) as peer:
        peer.send_frame(header + body)
        frame = peer.receive()
        assert frame is not None
        assert decode_answer(ApiVersionsResponse, 4, frame).error_code == 0
