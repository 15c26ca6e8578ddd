"""Fetch sessions (KIP-227): this broker keeps none.

A server may answer every request for a new session with session id 0, and the client then keeps sending full
requests. Decides the error code for each (session id, epoch); a request that names a session names an unknown
one.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode

NO_SESSION_ID = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0


def check_session(session_id: int, session_epoch: int) -> ErrorCode:
    """NONE if the request is a full one, which needs no session."""
    if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        return ErrorCode.NONE
    if session_id == NO_SESSION_ID:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
