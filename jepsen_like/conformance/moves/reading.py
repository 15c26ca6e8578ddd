"""Moves of readers and administrators: what is in partitions, who writes there, which transactions are."""

from typing import Any, Final

from pykraft.jepsen_like.conformance.draw import ADMIN
from pykraft.jepsen_like.conformance.moves.transactional_offsets import add_fetch as add_offset_fetch
from pykraft.jepsen_like.conformance.producer_blanks import FIRST_TIME_MS, STRANGER_ID, ProducerId
from pykraft.jepsen_like.conformance.script import TransactionalId, blank
from pykraft.jepsen_like.conformance.transaction_draw import PLACES, TransactionDraw
from pykraft.kafka_protocol.messages.groups import FindCoordinatorRequest
from pykraft.kafka_protocol.messages.offsets import OffsetFetchRequest
from pykraft.kafka_protocol.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pykraft.kafka_protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TopicRequest,
)

UNCOMMITTED, COMMITTED = 0, 1
_EARLIEST, _LATEST, _MAX_TIMESTAMP = -2, -1, -3
_MAX_BYTES: Final = 1 << 20
_KEYS_FROM: Final = 4
_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "CompleteCommit",
    "CompleteAbort",
    "ongoing",
    "Odd",
    "Dead",
)


def fetch(draw: TransactionDraw) -> None:
    version = draw.version(FetchRequest)
    isolation = draw.some((6, COMMITTED), (2, UNCOMMITTED))
    offset = draw.some((3, 0), (2, draw.rng.randrange(12)), (1, 1000))
    places = {name: sorted(set(indexes)) for name, indexes in draw.places().items()}
    _add_fetch(draw, version, isolation, places, offset, draw.some((6, _MAX_BYTES), (1, 100), (1, 1)))


def _add_fetch(
    draw: TransactionDraw,
    version: int,
    isolation: int,
    places: dict[str, list[int]],
    offset: int = 0,
    max_bytes: int = _MAX_BYTES,
) -> None:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=isolation,
        topics=[
            FetchTopic(
                topic=draw.topic_name(name),
                topic_id=draw.topic_id(name),
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
                    for index in indexes
                ],
            )
            for name, indexes in places.items()
        ],
    )
    draw.add(ADMIN, version, request)


def list_offsets(draw: TransactionDraw) -> None:
    times = (
        *((6, _LATEST), (2, _EARLIEST), (2, _MAX_TIMESTAMP)),
        (3, FIRST_TIME_MS + 1000 * draw.rng.randrange(30)),
    )
    _add_list_offsets(
        draw, draw.version(ListOffsetsRequest), draw.rng.randrange(2), draw.places(), draw.some(*times)
    )


def _add_list_offsets(
    draw: TransactionDraw, version: int, isolation: int, places: dict[str, list[int]], timestamp: int
) -> None:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=draw.topic_name(name),
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in set(indexes)
                ],
            )
            for name, indexes in places.items()
        ],
    )
    draw.add(ADMIN, version, request)


def delete_records(draw: TransactionDraw) -> None:
    name, index = draw.rng.choice(PLACES)
    partition = DeleteRecordsPartition(
        partition_index=index, offset=draw.some((3, draw.rng.randrange(4)), (1, -1))
    )
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=draw.topic_name(name), partitions=[partition])], timeout_ms=30_000
    )
    draw.add(ADMIN, draw.version(DeleteRecordsRequest), request)


def describe_producers(draw: TransactionDraw) -> None:
    topics = [
        TopicRequest(name=draw.topic_name(name), partition_indexes=sorted(set(indexes)))
        for name, indexes in draw.places().items()
    ]
    if draw.rarely(20):
        topics.append(TopicRequest(name="bad name", partition_indexes=[0]))
    draw.add(ADMIN, draw.version(DescribeProducersRequest), DescribeProducersRequest(topics=topics))


def describe_transactions(draw: TransactionDraw) -> None:
    chosen: dict[str, Any] = {}
    for _ in range(draw.some((4, 1), (2, 2), (1, 0))):
        one = draw.transactional_id(draw.actor())
        chosen[repr(one)] = one
    request = DescribeTransactionsRequest(transactional_ids=list(chosen.values()))
    draw.add(ADMIN, draw.version(DescribeTransactionsRequest), request)


def list_transactions(draw: TransactionDraw) -> None:
    pattern = draw.some(
        (4, None),
        (2, blank(TransactionalId("t"))),
        (1, blank(TransactionalId("", after="(t|u)"))),
        (1, blank(TransactionalId("", after="."))),
        (1, ".*"),
        (1, ""),
        (1, "[bad"),
    )
    request = ListTransactionsRequest(
        state_filters=draw.rng.sample(_STATES, draw.some((2, 0), (2, 1), (1, 3))),
        producer_id_filters=draw.some(
            (4, []), (2, [blank(ProducerId(draw.actor()))]), (1, [STRANGER_ID]), (1, [-1])
        ),
        duration_filter=draw.some((4, -1), (1, 10**9), (1, -5)),
        transactional_id_pattern=pattern,
    )
    draw.add(ADMIN, draw.version(ListTransactionsRequest), request)


def find_coordinator(draw: TransactionDraw) -> None:
    version = draw.version(FindCoordinatorRequest)
    request = FindCoordinatorRequest(key_type=draw.some((8, 1), (2, 0), (1, 3), (1, -1)))
    if version >= _KEYS_FROM:
        keys = {repr(one): one for one in (draw.transactional_id(draw.actor()) for _ in range(2))}
        request.coordinator_keys = list(keys.values())
    else:
        request.key = draw.transactional_id(draw.actor())
    draw.add(ADMIN, version, request)


def look_at_everything(draw: TransactionDraw) -> None:
    """The end of each script: the state that it has left."""
    places: dict[str, list[int]] = {}
    for name, index in PLACES:
        places.setdefault(name, []).append(index)
    for isolation in (UNCOMMITTED, COMMITTED):
        _add_fetch(draw, draw.highest(FetchRequest), isolation, places)
        _add_list_offsets(draw, draw.highest(ListOffsetsRequest), isolation, places, _LATEST)
    for stable in (False, True):
        add_offset_fetch(draw, draw.highest(OffsetFetchRequest), places, stable=stable, everything=not stable)
    topics = [
        TopicRequest(name=draw.topic_name(name), partition_indexes=indexes)
        for name, indexes in places.items()
    ]
    draw.add(ADMIN, 0, DescribeProducersRequest(topics=topics))
    names = [blank(TransactionalId(name)) for name in ("t", "u", "never")]
    draw.add(ADMIN, 0, DescribeTransactionsRequest(transactional_ids=names))
    draw.add(ADMIN, draw.highest(ListTransactionsRequest), ListTransactionsRequest())
