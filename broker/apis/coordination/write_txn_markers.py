"""WriteTxnMarkers: transaction coordinators tell how transactions ended (KIP-98, KIP-890, KIP-1228).

Each partition gets its marker at once, and the response waits until all of them are committed. Partitions of
``__consumer_offsets`` belong to the group coordinator, whose errors a transaction coordinator does not know:
it is told to look for the leader.

Only brokers (:mod:`pykraft.broker.peers.identity`) may say how a transaction ends. From others a marker is
taken only if it aborts a transaction that is open in the partition, and names its producer, its epoch, and no
newer coordinator than the partition knows: so tools abort what hangs. Everything else is refused with
CLUSTER_AUTHORIZATION_FAILED (``pykraft.transaction.markers.from.clients``). What is refused holds up no other
marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from itertools import islice

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.peers.identity import is_broker
from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import ABORT, COMMIT, EndOfTransaction, Marker
from pykraft.kafka_protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext

logger = logging.getLogger(__name__)

MARKERS_PER_TURN = 50
MAX_MARKERS = 10_000
"""In one request: ten milliseconds to answer. A coordinator sends far fewer."""
_GROUP_ERRORS = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)

_EPOCH_IS_BUMPED_FROM = 2
"""By the rules of ``transaction.version`` 2 a marker has the epoch after the one of its transaction."""

Place = tuple[int, str, int]
"""Producer id, topic, partition."""
Ends = Iterable[tuple[EndOfTransaction, Iterable[tuple[str, int]]]]
"""What markers say, and the partitions that get them."""
Codes = dict[Place, ErrorCode]


async def handle(
    services: BrokerServices, context: RequestContext, request: WriteTxnMarkersRequest, version: int
) -> WriteTxnMarkersResponse:
    if sum(1 for _ in islice(partitions_of(request), MAX_MARKERS + 1)) > MAX_MARKERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"more than {MAX_MARKERS} markers in one request")
    is_known = is_broker(context.client_id, services.metadata.image)
    allowed = "any" if is_known else services.config.markers_from_clients
    ends = ((_end_of(marker), _places_of(marker)) for marker in request.markers)
    return _build_response(await write_markers(services, ends, allowed))


async def write_markers(services: BrokerServices, ends: Ends, allowed: str = "any") -> Codes:
    """Also for the coordinator here. ``allowed``: as in ``pykraft.transaction.markers.from.clients``."""
    results: Codes = {}
    running: list[asyncio.Task[None]] = []
    try:
        for end, partitions in ends:
            for topic, index in partitions:
                place = (end.producer_id, topic, index)
                if _may_write(services, place, end, allowed):
                    writing = _write(services, place, end, results)
                    running.append(services.tasks.start(writing, "write-marker"))
                else:
                    results[place] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if (len(running) + len(results)) % MARKERS_PER_TURN == 0:
                    await services.tasks.sleep(0)
        if running:
            await asyncio.wait(running)
    finally:
        for task in running:
            task.cancel()
    return results


def partitions_of(request: WriteTxnMarkersRequest) -> Iterable[tuple[str, int]]:
    """The requested partitions, by topic name and index."""
    return (place for marker in request.markers for place in _places_of(marker))


def _places_of(marker: WritableTxnMarker) -> Iterable[tuple[str, int]]:
    return ((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)


def _end_of(marker: WritableTxnMarker) -> EndOfTransaction:
    kind = COMMIT if marker.transaction_result else ABORT
    return EndOfTransaction(
        marker.producer_id,
        marker.producer_epoch,
        Marker(kind, marker.coordinator_epoch),
        marker.transaction_version,
    )


def _may_write(services: BrokerServices, place: Place, end: EndOfTransaction, allowed: str) -> bool:
    """Whether a sender to whom this is ``allowed`` may have a marker written.

    A partition that is not led here passes: it is refused for that.
    """
    if allowed != "abort":
        return allowed == "any"
    producer_id, topic, index = place
    try:
        partition = services.replicas.by_name(topic, index)
        partition.require_leader()
    except KafkaError:
        return True
    entry = partition.producers.entry(producer_id)
    if entry is None or entry.first_offset < 0:
        return False
    epoch = end.producer_epoch - (end.transaction_version >= _EPOCH_IS_BUMPED_FROM)
    is_no_newer = end.marker.coordinator_epoch <= max(entry.coordinator_epoch, 0)
    return end.marker.kind == ABORT and epoch == entry.epoch and is_no_newer


async def _write(services: BrokerServices, place: Place, end: EndOfTransaction, results: Codes) -> None:
    producer_id, topic, index = place
    try:
        if producer_id < 0 or end.producer_epoch < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"a marker of producer {producer_id}, epoch {end.producer_epoch}"
            )
        if topic == OFFSETS_TOPIC:
            await services.offsets_transactions.end_transaction(index, end)
        else:
            await services.markers.write(topic, index, end)
    except KafkaError as error:
        is_of_group = topic == OFFSETS_TOPIC and error.code in _GROUP_ERRORS
        results[place] = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_of_group else error.code
    except Exception:
        logger.exception("a marker of producer %d to %s-%d", *place)
        results[place] = ErrorCode.UNKNOWN_SERVER_ERROR  # a bug costs this marker, which is sent again
    else:
        results[place] = ErrorCode.NONE


def _build_response(results: Codes) -> WriteTxnMarkersResponse:
    producers: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]] = {}
    for (producer_id, topic, index), code in results.items():
        producers.setdefault(producer_id, {}).setdefault(topic, []).append(
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
        )
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
            for producer_id, topics in producers.items()
        ]
    )
