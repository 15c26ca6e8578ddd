"""What a client of a fetch session names in its next request (KIP-227)."""

from dataclasses import replace

import pytest

from pykraft.broker.fetch_sessions.follower_side import (
    SESSIONLESS_MS,
    SHORT_SESSION_MS,
    FetchNames,
    FetchSessionHandler,
    SessionState,
)
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.hot.fetch_requests import FetchPartition
from pykraft.kafka_protocol.ids import Uuid

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
ASKED = FetchPartition(0, 1, 5, 1, 0, 1000)
ALL = {(A, 0): ASKED, (B, 0): ASKED}


def opened(now_ms: int = 0) -> FetchSessionHandler:
    handler = FetchSessionHandler()
    assert handler.build(ALL) == FetchNames(0, 0, {A: [ASKED], B: [ASKED]}, {})
    handler.answered(7, now_ms)
    return handler


def test_request_names_what_differs_from_what_the_broker_knows() -> None:
    handler = opened()
    assert handler.build({}) == FetchNames(7, 1, {}, {})
    assert handler.build(ALL) == FetchNames(7, 2, {}, {})
    moved = replace(ASKED, fetch_offset=6)
    assert handler.build({(A, 0): moved}) == FetchNames(7, 3, {A: [moved]}, {})
    assert handler.build({(A, 0): None}) == FetchNames(7, 4, {}, {A: [0]})
    assert handler.build({(A, 0): None}) == FetchNames(7, 5, {}, {})
    assert handler.build({(A, 0): moved}) == FetchNames(7, 6, {A: [moved]}, {})


def test_nothing_is_sent_while_nothing_is_fetched() -> None:
    handler = FetchSessionHandler()
    assert handler.build({(A, 0): None}) is None
    handler = opened()
    assert handler.build(dict.fromkeys(ALL)) == FetchNames(7, 1, {}, {A: [0], B: [0]})
    assert handler.build({}) is None


def test_session_that_the_broker_has_closed_is_opened_anew() -> None:
    handler = opened()
    handler.build(dict.fromkeys(ALL))
    handler.answered(0, 0)
    assert handler.build(ALL) == FetchNames(0, 0, {A: [ASKED], B: [ASKED]}, {})


@pytest.mark.parametrize(
    ("code", "closes"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_refused_session_is_closed_and_opened_anew(code: ErrorCode, closes: int) -> None:
    handler = opened()
    handler.refused(code, SHORT_SESSION_MS)
    names = handler.build(ALL)
    assert names is not None and names[:2] == (closes, 0) and len(names.topics) == 2


def test_lost_connection_ends_the_session() -> None:
    handler = opened()
    handler.build({(A, 0): replace(ASKED, fetch_offset=6)})
    handler.connection_lost()
    names = handler.build(ALL)
    assert names is not None and names[:2] == (7, 0) and len(names.topics) == 2


def test_broker_that_gives_no_session_is_asked_again_later() -> None:
    handler = FetchSessionHandler()
    handler.build(ALL)
    handler.answered(0, 100)
    names = handler.build(ALL)
    assert names is not None and names[:2] == (0, -1)
    handler.answered(0, 100)
    assert handler.may_send(1, 99 + SESSIONLESS_MS) and handler.state is SessionState.SESSIONLESS
    assert handler.may_send(1, 100 + SESSIONLESS_MS) and handler.state is SessionState.SESSIONLESS
    assert handler.may_send(0, 100 + SESSIONLESS_MS)
    names = handler.build(ALL)
    assert names is not None and names[:2] == (0, 0)


def test_session_that_ends_at_once_is_not_opened_again_at_once() -> None:
    handler = opened(now_ms=100)
    handler.refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 99 + SHORT_SESSION_MS)
    names = handler.build(ALL)
    assert names is not None and names[:2] == (0, -1)


def test_one_request_at_a_time_opens_a_session() -> None:
    handler = FetchSessionHandler()
    assert handler.may_send(0, 0) and not handler.may_send(1, 0)
    handler = opened()
    assert handler.may_send(1, 0) and not handler.may_send(2, 0)
