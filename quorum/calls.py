"""Calls between replicas, as bytes outside and as the core's events inside.

An incoming request waits here until the core answers it; an outgoing request returns as an answer or a
failure. Malformed bytes are refused here and never reach the core. Nothing else is decided here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.quorum import rpc
from pykraft.quorum.core import effects, events
from pykraft.quorum.core.events import Event
from pykraft.quorum.core.messages import Request, Response, VoterChangeRequest, VoterChangeResponse
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.runtime.log_throttle import LogThrottle
from pykraft.runtime.rpc import RpcFailure, RpcServer, RpcTransport

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 64 << 10
"""No request of a replica is longer; responses may be."""

_MAX_LOGGED_REFUSALS = 100


class Calls:
    """``step`` takes an event to the core. Nothing is accepted before :meth:`open` or after :meth:`close`."""

    def __init__(
        self, cluster_id: str, local: ReplicaKey, transport: RpcTransport, step: Callable[[Event], None]
    ) -> None:
        self._cluster_id = cluster_id
        self._local = local
        self._transport = transport
        self._step = step
        self._is_open = False
        self._waiting: dict[int, tuple[str, asyncio.Future[bytes]]] = {}
        self._next_token = 0
        self._logged_refusals: set[tuple[ReplicaKey, ErrorCode]] = set()
        self._last_reason = ""
        self._malformed_log = LogThrottle(logger)

    def open(self) -> None:
        self._is_open = True

    def close(self) -> None:
        """Callers that still wait get the error that this replica has stopped."""
        self._is_open = False
        for method, answer in self._waiting.values():
            if not answer.done():
                answer.set_result(self._refusal(method, ErrorCode.BROKER_NOT_AVAILABLE))
        self._waiting.clear()

    # --- incoming -----------------------------------------------------------------------------------------

    def register(self, server: RpcServer) -> None:
        for method in rpc.METHODS.values():
            server.register(method, self._handler(method))

    def _handler(self, method: str) -> Callable[[bytes], asyncio.Future[bytes]]:
        def handle(payload: bytes) -> asyncio.Future[bytes]:
            if not self._is_open:
                return self._refused(method, ErrorCode.BROKER_NOT_AVAILABLE)
            try:
                if len(payload) > MAX_REQUEST_BYTES:
                    raise ValueError(f"{len(payload)} bytes")
                request = rpc.decode_request(method, payload)
            except ValueError as error:
                self.log_malformed(f"a malformed request {method}: {error}")
                return self._refused(method, ErrorCode.INVALID_REQUEST)
            return self.ask(method, request)

        return handle

    def ask(self, method: str, request: Request) -> asyncio.Future[bytes]:
        """Have the core answer a request, of its own node or of another."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        token = self._next_token
        self._next_token += 1
        self._waiting[token] = (method, answer)
        self._step(events.RequestReceived(token, request))
        if not answer.done():
            answer.add_done_callback(partial(self._maybe_abandon, token))
        return answer

    def _maybe_abandon(self, token: int, answer: asyncio.Future[bytes]) -> None:
        """The caller has disconnected, or its deadline has passed."""
        if answer.cancelled() and self._waiting.pop(token, None) is not None:
            self._step(events.RequestAbandoned(token))

    async def change_voters(self, request: VoterChangeRequest) -> None:
        """Have the core change the voter set; :class:`KafkaError` if it does not."""
        if not self._is_open:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the replica does not run")
        method = rpc.METHODS[type(request)]
        response = rpc.decode_response(method, await self.ask(method, request))
        assert isinstance(response, VoterChangeResponse)
        if response.error is ErrorCode.BROKER_NOT_AVAILABLE:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the replica has stopped")
        if response.error is not ErrorCode.NONE:
            raise KafkaError(response.error, response.message)

    def reply(self, token: int, response: Response) -> None:
        _, answer = self._waiting.pop(token, (None, None))
        if answer is not None and not answer.done():
            answer.set_result(rpc.encode_response(response))

    def log_malformed(self, what: str) -> None:
        """A peer, or a foreign client, sent something impossible: log it, with a limited rate."""
        self._malformed_log.warning(
            asyncio.get_running_loop().time(), "Ignored an impossible message: %s", what
        )

    def _refused(self, method: str, error: ErrorCode) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer.set_result(self._refusal(method, error))
        return answer

    def _refusal(self, method: str, error: ErrorCode) -> bytes:
        return rpc.encode_response(rpc.refusal(method, self._cluster_id, self._local, error))

    # --- outgoing -----------------------------------------------------------------------------------------

    def send(self, effect: effects.Send) -> None:
        method, correlation_id = rpc.METHODS[type(effect.request)], effect.correlation_id

        def on_reply(reply: bytes | RpcFailure) -> None:
            if self._is_open:
                self._handle_reply(correlation_id, method, reply)

        payload = rpc.encode_request(effect.request)
        self._transport.send(effect.address, method, payload, effect.timeout_ms, on_reply)

    def _handle_reply(self, correlation_id: int, method: str, reply: bytes | RpcFailure) -> None:
        if isinstance(reply, RpcFailure):
            self._step(events.RequestFailed(correlation_id))
            return
        try:
            response = rpc.decode_response(method, reply)
        except ValueError as error:
            self.log_malformed(f"a malformed answer to {method}: {error}")
            self._step(events.RequestFailed(correlation_id))
            return
        if response.error in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_VOTER_KEY):
            self._log_refusal(response)
        elif isinstance(response, VoterChangeResponse) and response.message != self._last_reason:
            self._last_reason = response.message
            if response.error is not ErrorCode.NONE:
                logger.warning("Our place among the voters is not changed: %s", response.message)
        self._step(events.ResponseReceived(correlation_id, response))

    def _log_refusal(self, response: Response) -> None:
        """Log once, not at every retry, that a peer is not the replica that our voter set means."""
        seen = (response.replica, response.error)
        if seen not in self._logged_refusals:
            if len(self._logged_refusals) >= _MAX_LOGGED_REFUSALS:
                self._logged_refusals.clear()
            self._logged_refusals.add(seen)
            who, why = f"{response.replica} of cluster {response.cluster_id}", response.error.name
            logger.error("Replica %s refuses us: %s", who, why)
