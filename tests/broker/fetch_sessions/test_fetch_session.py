"""The rules of one fetch session: what is told, in which order, and which request is its next (KIP-227)."""

from dataclasses import replace

import pytest

from pykraft.broker.fetch_sessions.session import (
    MAX_EPOCH,
    CachedPartition,
    FetchSession,
    Results,
    next_epoch,
)
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.hot.fetch_requests import FetchPartition, FetchTopic, ForgottenTopic
from pykraft.kafka_protocol.hot.fetch_responses import FetchResult

ASKED = FetchPartition(0, -1, 5, -1, 0, 1000)
QUIET = FetchResult(0, 0, 5, 0)
RECORDS = FetchResult(0, 0, 5, 0, records=b"r")
ERROR = FetchResult(0, int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1, -1)


def has_all(cached: CachedPartition) -> bool:
    return True


def topics(*names: str) -> list[FetchTopic]:
    return [FetchTopic(name, None, [ASKED]) for name in names]


def found(**results: FetchResult) -> Results:
    return [(name, [result]) for name, result in results.items()]


def begun(**results: FetchResult) -> FetchSession:
    session = FetchSession(7, -1, -1, uses_topic_ids=False, now_ms=0)
    session.begin(topics(*results), found(**results), has_all)
    return session


def due(session: FetchSession) -> list[str | None]:
    return [topic.name for topic in session.due_topics()]


def ask(session: FetchSession, *names: str, forget: str = "") -> list[str | None]:
    """What the next request looks at."""
    session.update(topics(*names), [ForgottenTopic(name, None, [0]) for name in forget], 1)
    return due(session)


def told(session: FetchSession, **results: FetchResult) -> list[object]:
    return [topic for topic, _ in session.respond(found(**results), has_all)]


def test_request_looks_at_what_it_names_and_at_what_has_changed() -> None:
    session = begun(a=QUIET, b=QUIET, c=QUIET)
    assert ask(session) == []
    assert ask(session, "b") == ["b"]
    session.partitions["a", 0].changed(wake=False)
    assert ask(session) == ["b", "a"]
    assert told(session, a=QUIET, b=QUIET) == []
    assert ask(session) == []


@pytest.mark.parametrize(
    "result",
    [
        RECORDS,
        ERROR,
        replace(QUIET, diverging=(1, 3)),
        replace(QUIET, preferred_read_replica=2),
    ],
)
def test_partition_with_something_to_tell_is_told_and_looked_at_again(result: FetchResult) -> None:
    session = begun(a=QUIET, b=QUIET)
    ask(session, "a")
    for _ in range(2):
        assert told(session, a=result) == ["a"]
        assert due(session) == ["a"]


@pytest.mark.parametrize("result", [replace(QUIET, high_watermark=6), replace(QUIET, log_start_offset=1)])
def test_moved_offset_is_told_once(result: FetchResult) -> None:
    session = begun(a=QUIET)
    ask(session, "a")
    assert told(session, a=result) == ["a"]
    assert due(session) == []
    ask(session, "a")
    assert told(session, a=result) == []


def test_high_watermark_is_told_again_after_an_error() -> None:
    session = begun(a=QUIET)
    ask(session, "a")
    # OFFSET_OUT_OF_RANGE names the valid offsets, so these alone would not show that the error is over.
    assert told(session, a=replace(QUIET, error_code=1)) == ["a"]
    assert told(session, a=QUIET) == ["a"]
    assert told(session, a=QUIET) == []


def test_offsets_are_told_again_after_a_diverging_epoch() -> None:
    session = begun(a=QUIET)
    ask(session, "a")
    # The follower truncates its log and takes nothing else from such an answer.
    assert told(session, a=replace(QUIET, log_start_offset=3, diverging=(1, 3))) == ["a"]
    assert told(session, a=replace(QUIET, log_start_offset=3)) == ["a"]
    assert told(session, a=replace(QUIET, log_start_offset=3)) == []


def test_partition_whose_records_were_sent_is_looked_at_last() -> None:
    session = begun(a=RECORDS, b=RECORDS, c=RECORDS)
    ask(session)
    told(session, a=RECORDS)
    assert due(session) == ["b", "c", "a"]
    told(session, b=replace(QUIET, high_watermark=9), c=RECORDS)
    assert due(session) == ["a", "c"]


def test_partition_without_room_in_the_answer_is_looked_at_again() -> None:
    session = begun(a=QUIET)
    ask(session, "a")
    assert session.respond(found(a=QUIET), lambda cached: False) == []
    assert due(session) == ["a"]


def test_partition_that_remains_due_is_looked_at_last_unless_there_was_no_room() -> None:
    session = begun(a=QUIET, b=QUIET, c=QUIET)
    ask(session, "a", "b", "c")
    session.respond(found(a=QUIET, b=RECORDS), lambda cached: False, is_short=True)
    assert due(session) == ["a", "c", "b"]
    session.respond(found(a=QUIET, c=ERROR), lambda cached: False)
    assert due(session) == ["b", "a", "c"]


def test_forgotten_partition_is_gone_and_can_come_back() -> None:
    session = begun(a=QUIET, b=QUIET)
    subscribers: dict[CachedPartition, None] = {}
    session.partitions["a", 0].subscribe(subscribers)
    assert ask(session, forget="a") == []
    assert not subscribers and ("a", 0) not in session.partitions
    assert ask(session, "a") == ["a"]
    assert told(session, a=QUIET) == ["a"]


def test_neighbours_of_one_topic_are_put_together_and_others_keep_their_place() -> None:
    session = FetchSession(7, -1, -1, uses_topic_ids=False, now_ms=0)
    second = replace(ASKED, partition=1)
    session.update([FetchTopic("a", None, [ASKED, second]), *topics("b")], [], 0)
    assert [(t.name, len(t.partitions)) for t in session.due_topics()] == [("a", 2), ("b", 1)]
    session.respond([("a", [RECORDS])], lambda cached: False)
    names = [(t.name, [p.partition for p in t.partitions]) for t in session.due_topics()]
    assert names == [("a", [1]), ("b", [0]), ("a", [0])]


def test_epoch_is_that_of_the_next_request_and_wraps() -> None:
    session = begun(a=QUIET)
    assert session.epoch == 1
    ask(session)
    assert session.epoch == 2
    assert next_epoch(MAX_EPOCH) == 1


@pytest.mark.parametrize(
    ("epoch", "replica", "ids", "code"),
    [
        (1, (-1, -1), False, ErrorCode.NONE),
        (2, (-1, -1), False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, (-1, -1), True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        (1, (2, 102), False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_only_the_next_request_of_the_same_client_is_taken(
    epoch: int, replica: tuple[int, int], ids: bool, code: ErrorCode
) -> None:
    assert begun(a=QUIET).check(epoch, *replica, uses_topic_ids=ids) is code


class Follower:
    def __init__(self, cached: CachedPartition) -> None:
        self.cached = cached
        self.left_at_ms: int | None = None

    def stop_counting(self, fetches: CachedPartition) -> None:
        assert fetches is self.cached
        self.left_at_ms = fetches.last_fetch_ms


def test_requests_count_for_a_follower_until_its_partition_changes() -> None:
    session = begun(a=QUIET)
    cached = session.partitions["a", 0]
    follower = cached.follower = Follower(cached)
    session.update([], [], 100)
    assert (follower.left_at_ms, session.last_fetch_ms) == (None, 100)
    cached.changed(wake=True)
    session.update([], [], 200)
    assert (follower.left_at_ms, session.last_fetch_ms) == (100, 200)


def test_requests_do_not_count_for_a_forgotten_follower() -> None:
    session = begun(a=QUIET, b=QUIET)
    cached = session.partitions["a", 0]
    follower = cached.follower = Follower(cached)
    session.update([], [ForgottenTopic("a", None, [0])], 100)
    assert follower.left_at_ms == 0
