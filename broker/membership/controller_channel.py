"""Calls to the active controller, whichever node it currently is.

The broker's own quorum replica knows the leader. A call that finds no leader, or gets no answer or
NOT_CONTROLLER, is repeated until the caller's timeout expires, so that a client notices an election only as a
delay. The pauses between attempts at one node grow, with jitter: the callers may be what keeps it from
answering. A new leader is called at once. The controller's decision is returned unchanged; without one the
call ends with REQUEST_TIMED_OUT. A node that does not answer is given up as soon as another one leads: a
process that is paused or partitioned away closes no connection. No call outlives its caller, or its timeout.

A client sees at its broker what it has had decided: the answer to a forwarded request waits, for a moment,
until this node has the metadata that it is based on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final, Protocol, TypeVar

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint
from pykraft.runtime.address import Address
from pykraft.runtime.backoff import Backoff, RandomSource
from pykraft.runtime.clock import Clock
from pykraft.runtime.rpc import RpcFailure, RpcTransport

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Controller"].full_name
ATTEMPT_TIMEOUT_MS = 5000
BACKOFF = Backoff(50, 1000)
LEADER_CHECK_MS = 100
"""How often a call that waits for its answer checks whether another node leads."""
LEADER_SEARCH_MS = 50
"""How often a call checks who leads while there is no leader, or while it pauses between attempts."""
CATCH_UP_MS = 1000
"""How long an answer waits for the metadata that it is based on."""
_CATCH_UP_CHECK_MS = 2


class _Response(Protocol):
    error_code: int
    error_message: str


class _Request(Protocol):
    def SerializeToString(self) -> bytes: ...


R = TypeVar("R", bound=_Response)


def endpoint_messages(endpoints: Iterable[Endpoint]) -> list[pb.Endpoint]:
    """The endpoints in the form of a registration."""
    return [
        pb.Endpoint(name=item.name, host=item.host, port=item.port, security_protocol=item.security_protocol)
        for item in endpoints
    ]


class _TimeLimit:
    """How long a call may take. A narrower limit that is costly to find out is read only if it is needed."""

    def __init__(self, clock: Clock, timeout_ms: int, narrower_ms: Callable[[], int] | None = None) -> None:
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._timeout_ms = timeout_ms
        self._narrower_ms = narrower_ms

    @property
    def left_ms(self) -> int:
        return self._began_ms + self._timeout_ms - self._clock.monotonic_ms()

    def tighten(self) -> None:
        """Apply the narrower limit from now on: there was no answer at once."""
        if self._narrower_ms is not None:
            self._timeout_ms = min(self._timeout_ms, self._narrower_ms())
            self._narrower_ms = None


class ControllerChannel:
    """The calls of one broker to the active controller."""

    def __init__(
        self,
        transport: RpcTransport,
        leader_address: Callable[[], Address | None],
        clock: Clock,
        rng: RandomSource,
        incarnation_id: bytes = b"",
        metadata_end_offset: Callable[[], int] | None = None,
    ) -> None:
        """``incarnation_id`` identifies this process and, with a number, each request that it forwards.

        ``metadata_end_offset``: this node has all metadata below it; None if nobody here reads it.
        """
        self._incarnation_id = incarnation_id
        self._metadata_end_offset = metadata_end_offset
        self._request_numbers = count()
        self._transport = transport
        self._leader_address = leader_address
        self._clock = clock
        self._rng = rng

    async def call(
        self,
        method: str,
        request: _Request,
        parse: Callable[[bytes], R],
        timeout_ms: int,
        attempt_timeout_ms: int = ATTEMPT_TIMEOUT_MS,
    ) -> R:
        """Call ``method`` of the controller service until a leader has answered.

        :class:`KafkaError` with the controller's code if it refused, REQUEST_TIMED_OUT if none answered.
        """
        payload = request.SerializeToString()
        limit = _TimeLimit(self._clock, timeout_ms)
        return await self._call(method, lambda _attempt: payload, parse, limit, attempt_timeout_ms)

    async def _call(
        self,
        method: str,
        make_payload: Callable[[int], bytes],
        parse: Callable[[bytes], R],
        limit: _TimeLimit,
        attempt_timeout_ms: int,
    ) -> R:
        """``make_payload`` is called with the number of earlier attempts."""
        attempts = count()
        reason = ""
        asked: Address | None = None
        failures = 0  # consecutive ones, of the node that was called last
        while (remaining_ms := limit.left_ms) > 0:
            address = self._leader_address()
            if address is None:
                reason = "there is no active controller"
                limit.tighten()
                await asyncio.sleep(min(LEADER_SEARCH_MS, remaining_ms) / 1000)
                continue
            failures = failures + 1 if address == asked else 1
            asked = address
            payload = make_payload(next(attempts))
            wait_ms = min(remaining_ms, attempt_timeout_ms)
            outcome = await self._attempt(address, method, payload, wait_ms, limit)
            if isinstance(outcome, RpcFailure):
                reason = outcome.reason
            else:
                response = parse(outcome)
                if response.error_code == ErrorCode.NONE:
                    return response
                if response.error_code != ErrorCode.NOT_CONTROLLER:
                    raise KafkaError(ErrorCode(response.error_code), response.error_message)
                reason = "the controller is changing"
            limit.tighten()
            pause_ms = min(BACKOFF.delay_ms(failures, self._rng), limit.left_ms)
            await self._pause(address, self._clock.monotonic_ms() + pause_ms)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the active controller did not answer: {reason}")

    async def _pause(self, asked: Address, until_ms: int) -> None:
        """Wait until ``until_ms``, or until another node than ``asked`` leads."""
        while (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            if self._leader_address() not in (None, asked):
                return
            await asyncio.sleep(min(LEADER_SEARCH_MS, left_ms) / 1000)

    async def _attempt(
        self, address: Address, method: str, payload: bytes, wait_ms: int, limit: _TimeLimit
    ) -> bytes | RpcFailure:
        reply: asyncio.Future[bytes | RpcFailure] = asyncio.get_running_loop().create_future()

        def take(outcome: bytes | RpcFailure) -> None:
            if not reply.done():
                reply.set_result(outcome)

        call = self._transport.send(address, f"/{_SERVICE}/{method}", payload, wait_ms, take)
        try:
            while not reply.done():
                await asyncio.wait((reply,), timeout=LEADER_CHECK_MS / 1000)
                if not reply.done() and self._leader_address() not in (None, address):
                    return RpcFailure("the controller has changed")
                if not reply.done():
                    limit.tighten()
                    if limit.left_ms <= 0:
                        return RpcFailure("no answer in time")
            return reply.result()
        finally:
            call.cancel()  # a paused controller must not execute it after the caller gave up

    async def forward(
        self,
        context: RequestContext,
        api_key: int,
        api_version: int,
        body: bytes,
        timeout_ms: int,
        own_timeout_ms: Callable[[], int] | None = None,
    ) -> bytes:
        """Have the controller answer a client's request; bodies are encoded as in ``api_version``.

        The metadata of this node includes what was decided, unless it is more than :data:`CATCH_UP_MS`
        behind. ``own_timeout_ms`` reads the client's own timeout from the request, if there is no answer at
        once.
        """
        request = pb.ForwardRequest(
            api_key=api_key,
            api_version=api_version,
            body=body,
            principal=context.principal,
            client_id=context.client_id,
            client_address=context.client_address,
            listener=context.listener,
            timeout_ms=timeout_ms,
        )
        if self._incarnation_id:
            request.request_id = self._incarnation_id + next(self._request_numbers).to_bytes(8, "big")

        def make_payload(attempt: int) -> bytes:
            request.attempt = attempt
            return request.SerializeToString()

        limit = _TimeLimit(self._clock, timeout_ms, own_timeout_ms)
        parse = pb.ForwardResponse.FromString
        response = await self._call("Forward", make_payload, parse, limit, attempt_timeout_ms=timeout_ms)
        await self._catch_up(response.metadata_end_offset)
        return bytes(response.body)

    async def _catch_up(self, end_offset: int) -> None:
        own, until_ms = self._metadata_end_offset, self._clock.monotonic_ms() + CATCH_UP_MS
        while own is not None and own() < end_offset and self._clock.monotonic_ms() < until_ms:
            await asyncio.sleep(_CATCH_UP_CHECK_MS / 1000)
