"""Fetch sessions (KIP-227): which sessions this broker keeps, namely none.

A server may answer every request for a new session with session id 0, and the client then goes on sending
full requests. Decides what to say to each (session id, epoch); a request that refers to a session refers to
one that is not here.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode

NO_SESSION_ID = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0


def check_session(session_id: int, session_epoch: int) -> ErrorCode:
    """NONE if the request is full and can be answered without a session."""
    if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        return ErrorCode.NONE
    if session_id == NO_SESSION_ID:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
