"""Fetching one partition: positions, leader changes, typed losses."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TypedDict, Unpack

import pytest

from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.errors import (
    ClientTimeoutError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicDeletedError,
    TopicRecreatedError,
)
from pykraft.kafka_client.fetcher import FetchConfig, FetchedBatches, PartitionFetcher
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.records import (
    DivergingEpoch,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    NodeEndpoint,
    PartitionData,
)
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from tests.kafka_client.scripted import Answer, Handler, Later, ScriptedCluster
from tests.kafka_client.virtual_cluster import network_of, run_virtual


def batch(base_offset: int, count: int = 5, epoch: int = 3, value: bytes = b"v") -> bytes:
    return encode_batch([RecordInput(None, value)] * count, base_offset=base_offset, leader_epoch=epoch)


class PartitionFields(TypedDict, total=False):
    """What tests set of an answer for a partition."""

    current_leader: LeaderIdAndEpoch
    diverging_epoch: DivergingEpoch
    preferred_read_replica: int


def respond(
    request: FetchRequest,
    records: bytes = b"",
    error: ErrorCode = ErrorCode.NONE,
    endpoints: Sequence[NodeEndpoint] = (),
    **fields: Unpack[PartitionFields],
) -> FetchResponse:
    topic = request.topics[0]
    partition = PartitionData(
        partition_index=topic.partitions[0].partition,
        error_code=error,
        high_watermark=100,
        records=records,
        **fields,
    )
    response = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[partition])
    return FetchResponse(responses=[response], node_endpoints=list(endpoints))


class Log:
    """A script for Fetch: whole batches from the requested offset on, sent by the leader only."""

    def __init__(self, scripted: ScriptedCluster, batches: list[tuple[int, bytes]], topic: str = "t") -> None:
        self.scripted = scripted
        self.batches = batches
        self.topic = topic
        self.errors: list[ErrorCode] = []

    def __call__(self, broker_id: int, request: FetchRequest, version: int) -> Answer:
        leader, epoch = self.scripted.leaders[self.topic][0]
        wanted = request.topics[0].partitions[0]
        if self.errors:
            return respond(request, error=self.errors.pop(0))
        if broker_id != leader:
            return respond(request, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if wanted.current_leader_epoch < epoch:
            return respond(request, error=ErrorCode.FENCED_LEADER_EPOCH)
        data = b"".join(raw for end, raw in self.batches if end > wanted.fetch_offset)
        return respond(request, data[: wanted.partition_max_bytes])


@pytest.fixture
def log(scripted: ScriptedCluster) -> Log:
    scripted.add_topic("t", {0: (2, 3)})
    log = Log(scripted, [(5, batch(0)), (10, batch(5)), (15, batch(10))])
    scripted.script(ApiKey.FETCH, log)
    scripted.script(ApiKey.LIST_OFFSETS, list_offsets)
    return log


def list_offsets(broker_id: int, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    topic = request.topics[0]
    offset = {-2: 4, -1: 15}[topic.partitions[0].timestamp]
    partition = ListOffsetsPartitionResponse(
        partition_index=topic.partitions[0].partition_index, offset=offset
    )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[partition])])


def fetcher_at(
    scripted: ScriptedCluster,
    position: int,
    topic_id: Uuid | None = None,
    config: FetchConfig | None = None,
    client: Cluster | None = None,
) -> PartitionFetcher:
    client = client or scripted.client()
    return PartitionFetcher(client, "t", topic_id, 0, position, config or FetchConfig())


def fetch(
    scripted: ScriptedCluster,
    fetcher: PartitionFetcher,
    timeout_ms: int = 10_000,
    *,
    read_ahead_until: int | None = None,
) -> FetchedBatches:
    return run(fetcher.fetch(scripted.network.time_ms + timeout_ms, read_ahead_until=read_ahead_until))


def test_whole_batches_are_returned_and_the_position_moves_past_them(
    scripted: ScriptedCluster, log: Log
) -> None:
    fetcher = fetcher_at(scripted, 7)
    fetched = fetch(scripted, fetcher)
    assert [header.base_offset for _, header in fetched.headers] == [5, 10]
    assert (fetched.next_offset, fetcher.position) == (15, 15)
    assert fetch(scripted, fetcher).headers == ()
    assert fetcher.position == 15


def test_partial_batch_at_the_end_is_left_out(scripted: ScriptedCluster, log: Log) -> None:
    size = len(batch(0))
    fetcher = fetcher_at(scripted, 0, config=FetchConfig(max_partition_fetch_bytes=2 * size + 10))
    fetched = fetch(scripted, fetcher)
    assert len(fetched.data) == 2 * size
    assert fetcher.position == 10


def test_batch_larger_than_the_limit_is_asked_for_again_with_more_room(
    scripted: ScriptedCluster, log: Log
) -> None:
    fetcher = fetcher_at(scripted, 0, config=FetchConfig(max_partition_fetch_bytes=40))
    assert fetch(scripted, fetcher).headers
    asked = [
        request.topics[0].partitions[0].partition_max_bytes
        for _, _, request in scripted.requests(ApiKey.FETCH)
    ]
    assert asked == [40, 80, 160]


def test_request_carries_topic_id_and_epochs(scripted: ScriptedCluster, log: Log) -> None:
    fetcher = fetcher_at(scripted, 0)
    fetch(scripted, fetcher)
    fetch(scripted, fetcher)
    (_, version, first), (_, _, second) = scripted.requests(ApiKey.FETCH)
    assert version >= 13
    assert first.topics[0].topic_id == scripted.topic_ids["t"]
    asked = [
        (p.current_leader_epoch, p.last_fetched_epoch)
        for p in (r.topics[0].partitions[0] for r in (first, second))
    ]
    assert asked == [(3, -1), (3, 3)]


def test_topic_without_an_id_is_fetched_by_name(scripted: ScriptedCluster, log: Log) -> None:
    scripted.topic_ids["t"] = ZERO_UUID
    assert fetch(scripted, fetcher_at(scripted, 0)).headers
    assert [version for _, version, _ in scripted.requests(ApiKey.FETCH)] == [12]


def test_moved_leader_is_found_through_fresh_metadata(scripted: ScriptedCluster, log: Log) -> None:
    fetcher = fetcher_at(scripted, 0)
    fetch(scripted, fetcher)
    log.batches.append((20, batch(15, epoch=4)))
    scripted.leaders["t"][0] = (3, 4)
    assert fetch(scripted, fetcher).next_offset == 20
    assert [broker for broker, _, _ in scripted.requests(ApiKey.FETCH)] == [2, 2, 3]


def test_fenced_epoch_is_retried_with_the_new_one(scripted: ScriptedCluster, log: Log) -> None:
    fetcher = fetcher_at(scripted, 0)
    fetch(scripted, fetcher)
    log.batches.append((20, batch(15, epoch=7)))
    scripted.leaders["t"][0] = (2, 7)
    assert fetch(scripted, fetcher).next_offset == 20


def test_leader_hint_is_followed_without_asking_for_metadata(scripted: ScriptedCluster, log: Log) -> None:
    fetcher = fetcher_at(scripted, 0)
    fetch(scripted, fetcher)
    scripted.leaders["t"][0] = (3, 4)
    scripted.brokers[2].handlers[ApiKey.FETCH] = lambda request, version: respond(
        request,
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=4),
        endpoints=[NodeEndpoint(node_id=3, host="broker", port=3)],
    )
    for broker in scripted.brokers.values():
        broker.handlers[ApiKey.METADATA] = lambda request, version: ConnectionResetError("no metadata now")
    fetch(scripted, fetcher)
    assert [broker for broker, _, _ in scripted.requests(ApiKey.FETCH)] == [2, 2, 3]


def test_broken_connection_is_retried_elsewhere(scripted: ScriptedCluster, log: Log) -> None:
    fetcher = fetcher_at(scripted, 0)
    fetch(scripted, fetcher)
    scripted.brokers[2].up = False
    scripted.network.on_sleep = lambda: scripted.leaders["t"].update({0: (1, 4)})
    assert fetch(scripted, fetcher).headers == ()
    assert scripted.requests(ApiKey.FETCH)[0][0] == 1


def test_partition_without_a_leader_is_waited_for_with_growing_pauses(
    scripted: ScriptedCluster, log: Log
) -> None:
    scripted.leaders["t"][0] = (-1, 4)
    with pytest.raises(ClientTimeoutError, match="LEADER_NOT_AVAILABLE"):
        fetch(scripted, fetcher_at(scripted, 0), timeout_ms=2_000)
    pauses = scripted.network.slept_ms
    assert pauses == sorted(pauses) and pauses[-1] > pauses[0]


def test_broker_that_does_not_know_a_new_partition_yet_is_retried(
    scripted: ScriptedCluster, log: Log
) -> None:
    log.errors = [ErrorCode.UNKNOWN_TOPIC_ID] * 12
    assert fetch(scripted, fetcher_at(scripted, 0), timeout_ms=20_000).headers


def test_offset_out_of_range_names_what_the_log_holds(scripted: ScriptedCluster, log: Log) -> None:
    log.errors = [ErrorCode.OFFSET_OUT_OF_RANGE]
    with pytest.raises(OffsetOutOfRangeError) as caught:
        fetch(scripted, fetcher_at(scripted, 1))
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (4, 15)
    assert "t-0: offset 1 is outside the log, which holds 4 up to 15" in str(caught.value)


def test_diverging_epoch_is_a_truncated_log(scripted: ScriptedCluster, log: Log) -> None:
    fetcher = fetcher_at(scripted, 0)
    fetch(scripted, fetcher)
    scripted.script(
        ApiKey.FETCH,
        lambda broker, request, version: respond(
            request, diverging_epoch=DivergingEpoch(epoch=3, end_offset=8)
        ),
    )
    with pytest.raises(LogTruncatedError, match="truncated to offset 8, below the reader's 15"):
        fetch(scripted, fetcher)


def test_reader_that_goes_on_elsewhere_is_not_compared_with_what_it_read_before(
    scripted: ScriptedCluster, log: Log
) -> None:
    """Its last epoch may be gone with what was deleted. A request sent ahead is for where it was before."""
    fetcher = fetcher_at(scripted, 0)
    assert fetch(scripted, fetcher, read_ahead_until=100).next_offset == 15
    fetcher.position = 7
    fetched = fetch(scripted, fetcher)
    assert fetched.headers[0][1].base_offset == 5 and fetcher.position == 15
    asked = [request.topics[0].partitions[0] for _, _, request in scripted.requests(ApiKey.FETCH)]
    assert [(one.fetch_offset, one.last_fetched_epoch) for one in asked] == [(0, -1), (15, 3), (7, -1)]


def test_topic_recreated_under_a_new_id_is_an_error(scripted: ScriptedCluster, log: Log) -> None:
    fetcher = fetcher_at(scripted, 0)
    fetch(scripted, fetcher)
    scripted.add_topic("t", {0: (2, 0)}, topic_id=Uuid(b"another id here!"))
    log.errors = [ErrorCode.UNKNOWN_TOPIC_ID]
    with pytest.raises(TopicRecreatedError):
        fetch(scripted, fetcher)


def test_topic_with_another_id_from_the_start_is_refused(scripted: ScriptedCluster, log: Log) -> None:
    with pytest.raises(TopicRecreatedError):
        fetch(scripted, fetcher_at(scripted, 0, topic_id=Uuid(b"planned with thi")))


def test_deleted_topic_is_reported_soon(scripted: ScriptedCluster, log: Log) -> None:
    fetcher = fetcher_at(scripted, 0)
    fetch(scripted, fetcher)
    del scripted.topic_ids["t"]
    log.errors = [ErrorCode.UNKNOWN_TOPIC_ID] * 100
    began = scripted.network.time_ms
    with pytest.raises(TopicDeletedError):
        fetch(scripted, fetcher, timeout_ms=60_000)
    assert scripted.network.time_ms - began < 10_000


def test_final_error_is_raised_at_once(scripted: ScriptedCluster, log: Log) -> None:
    log.errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaError) as caught:
        fetch(scripted, fetcher_at(scripted, 0))
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert scripted.network.slept_ms == []


@pytest.mark.parametrize("position", [11, 80], ids=["length", "record"])
def test_batch_that_is_damaged_on_the_leaders_disk_is_asked_for_again(
    scripted: ScriptedCluster, log: Log, position: int
) -> None:
    """Another replica may lead soon."""
    damaged, sound = bytearray(batch(0)), log.batches[0]
    damaged[position] ^= 1 if position > 20 else 0xFF
    log.batches[0] = (5, bytes(damaged))

    def answer(broker_id: int, request: FetchRequest, version: int) -> Answer:
        if len(scripted.network.slept_ms) == 2:
            log.batches[0] = sound
        return log(broker_id, request, version)

    scripted.script(ApiKey.FETCH, answer)
    fetcher = fetcher_at(scripted, 0)
    assert fetch(scripted, fetcher).next_offset == 15
    assert len(scripted.network.slept_ms) == 2


def test_damaged_batch_is_reported_in_the_end_unless_its_crc_is_not_to_be_checked(
    scripted: ScriptedCluster, log: Log
) -> None:
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    log.batches[0] = (5, bytes(damaged))
    with pytest.raises(KafkaError, match="t-0: the batch at offset 0 is corrupt: its CRC does not match"):
        fetch(scripted, fetcher_at(scripted, 0))
    unchecked = fetcher_at(scripted, 0, config=FetchConfig(check_crcs=False))
    assert fetch(scripted, unchecked).next_offset == 15


def test_next_request_is_sent_before_the_answer_is_returned(scripted: ScriptedCluster, log: Log) -> None:
    small = FetchConfig(max_partition_fetch_bytes=len(batch(0)))
    fetcher = fetcher_at(scripted, 0, config=small)
    fetch(scripted, fetcher, read_ahead_until=10)
    assert len(scripted.requests(ApiKey.FETCH)) == 2
    assert fetch(scripted, fetcher, read_ahead_until=10).next_offset == 10
    assert len(scripted.requests(ApiKey.FETCH)) == 2, "nothing is sent beyond the end"


def test_read_ahead_that_cannot_be_sent_does_not_spoil_the_answer(
    scripted: ScriptedCluster, log: Log
) -> None:
    small = FetchConfig(max_partition_fetch_bytes=len(batch(0)))
    fetcher = fetcher_at(scripted, 0, config=small)
    inner = scripted.brokers[2].handlers[ApiKey.FETCH]

    def answer_and_die(request: FetchRequest, version: int) -> Answer:
        scripted.brokers[2].up = False
        return inner(request, version)

    scripted.brokers[2].handlers[ApiKey.FETCH] = answer_and_die
    assert fetch(scripted, fetcher, read_ahead_until=15).next_offset == 5


def follower_fetch(scripted: ScriptedCluster, follower_answer: Handler) -> PartitionFetcher:
    """The leader, 2, sends a consumer with a rack to replica 1."""
    leader_answer = scripted.brokers[2].handlers[ApiKey.FETCH]

    def leader(request: FetchRequest, version: int) -> Answer:
        return (
            respond(request, preferred_read_replica=1) if request.rack_id else leader_answer(request, version)
        )

    scripted.brokers[2].handlers[ApiKey.FETCH] = leader
    scripted.brokers[1].handlers[ApiKey.FETCH] = follower_answer
    return fetcher_at(scripted, 0, config=FetchConfig(rack="r1"))


def test_replica_the_leader_prefers_is_read_from(scripted: ScriptedCluster, log: Log) -> None:
    fetcher = follower_fetch(scripted, lambda request, version: respond(request, batch(0)))
    assert fetch(scripted, fetcher).next_offset == 5
    assert {broker for broker, _, _ in scripted.requests(ApiKey.FETCH)} == {1, 2}


def test_follower_that_is_behind_is_not_taken_for_data_loss(scripted: ScriptedCluster, log: Log) -> None:
    fetcher = follower_fetch(
        scripted, lambda request, version: respond(request, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    )
    assert fetch(scripted, fetcher).next_offset == 15


def fetches(scripted: ScriptedCluster) -> dict[int, int]:
    """The number of fetches at each broker."""
    return Counter(broker for broker, _, _ in scripted.requests(ApiKey.FETCH))


def test_leader_chooses_the_replica_again_when_the_metadata_is_old(
    scripted: ScriptedCluster, log: Log
) -> None:
    fetcher = follower_fetch(scripted, lambda request, version: respond(request, batch(0)))
    fetch(scripted, fetcher)
    scripted.network.time_ms += 299_999
    fetch(scripted, fetcher)
    assert fetches(scripted) == {1: 2, 2: 1}
    scripted.network.time_ms += 1
    fetch(scripted, fetcher)
    assert fetches(scripted) == {1: 3, 2: 2}


def test_follower_that_was_of_no_use_is_tried_again_later(scripted: ScriptedCluster, log: Log) -> None:
    answers = iter([ErrorCode.OFFSET_OUT_OF_RANGE])

    def follower(request: FetchRequest, version: int) -> Answer:
        error = next(answers, None)
        return respond(request, batch(15)) if error is None else respond(request, error=error)

    fetcher = follower_fetch(scripted, follower)
    for _ in range(2):
        fetch(scripted, fetcher)
    assert fetches(scripted) == {1: 1, 2: 3}
    scripted.network.time_ms += 300_000
    fetch(scripted, fetcher)
    assert fetches(scripted) == {1: 2, 2: 4}


def test_history_of_a_follower_that_is_behind_is_not_taken_for_truncation(
    scripted: ScriptedCluster, log: Log
) -> None:
    fetcher = follower_fetch(
        scripted,
        lambda request, version: respond(request, diverging_epoch=DivergingEpoch(epoch=3, end_offset=2)),
    )
    assert fetch(scripted, fetcher).next_offset == 15


def test_failed_follower_sends_the_reader_back_to_the_leader(scripted: ScriptedCluster, log: Log) -> None:
    answers = iter([ConnectionResetError("gone")])
    fetcher = follower_fetch(
        scripted, lambda request, version: next(answers, None) or respond(request, batch(0, count=2))
    )
    assert fetch(scripted, fetcher).next_offset == 2


@pytest.mark.parametrize("cut_after_ms", range(1, 30, 2))
@pytest.mark.parametrize("reads_ahead", [True, False])
def test_fetch_that_is_cut_off_costs_and_repeats_no_batch(
    scripted: ScriptedCluster, log: Log, cut_after_ms: int, reads_ahead: bool
) -> None:
    """Wherever it waits: for a connection, for metadata, for the answer, or for the request that is ahead."""
    until = 100 if reads_ahead else None
    log.batches = [(5, batch(0)), (10, batch(5)), (15, batch(10))]
    scripted.script(ApiKey.FETCH, lambda *asked: Later(one_batch(log(*asked)), delay_ms=5))

    async def main() -> list[int]:
        network = network_of(scripted)
        network.write_ms = 3
        addresses = tuple(broker.address for broker in scripted.brokers.values())
        client = Cluster(network, ClientConfig(addresses))
        fetcher = fetcher_at(scripted, 0, client=client, config=FetchConfig(max_partition_fetch_bytes=80))
        found: list[int] = []
        for attempt in range(30):
            fetching = fetcher.fetch(network.now_ms() + 10_000, read_ahead_until=until)
            limit_s = cut_after_ms / 1000 if attempt % 2 == 0 else None
            with suppress(TimeoutError):
                fetched = await asyncio.wait_for(fetching, limit_s)
                found += [header.base_offset for _, header in fetched.headers]
            if fetcher.position == 15:
                break
        fetcher.close()
        client.close()
        return found

    assert run_virtual(main()) == [0, 5, 10]


def one_batch(answer: Answer) -> Answer:
    """Of those that a leader has."""
    assert isinstance(answer, FetchResponse)
    for topic in answer.responses:
        for partition in topic.partitions:
            partition.records = bytes(partition.records or b"")[: len(batch(0))]
    return answer


def test_answer_is_waited_for_as_long_as_a_request_and_its_wait_take(
    scripted: ScriptedCluster, log: Log
) -> None:
    silent: list[Answer] = [TimeoutError("silence")]
    scripted.script(ApiKey.FETCH, lambda *asked: silent.pop() if silent else log(*asked))
    client = scripted.client(request_timeout_ms=1_000)
    began_ms = scripted.network.time_ms
    assert fetch(scripted, fetcher_at(scripted, 0, client=client), timeout_ms=60_000).headers
    waited_ms = scripted.network.time_ms - began_ms - sum(scripted.network.slept_ms)
    assert waited_ms == 1_000 + FetchConfig().max_wait_ms
    silent += [TimeoutError("silence")] * 9
    began_ms = scripted.network.time_ms
    with pytest.raises(ClientTimeoutError):
        fetch(scripted, fetcher_at(scripted, 0, client=client), timeout_ms=200)
    assert scripted.network.time_ms - began_ms == 200 + FetchConfig().max_wait_ms


@pytest.mark.parametrize(("most", "of_a_partition", "asked"), [(100, 1_000, 1_000), (1_000, 200, 1_000)])
def test_request_has_room_for_what_its_partition_may_have(
    scripted: ScriptedCluster, log: Log, most: int, of_a_partition: int, asked: int
) -> None:
    config = FetchConfig(max_bytes=most, max_partition_fetch_bytes=of_a_partition)
    fetch(scripted, fetcher_at(scripted, 0, config=config))
    (_, _, request), *_ = scripted.requests(ApiKey.FETCH)
    assert (request.max_bytes, request.topics[0].partitions[0].partition_max_bytes) == (asked, of_a_partition)
