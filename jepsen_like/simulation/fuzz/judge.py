"""Plays requests to a node and judges what becomes of each.

A finding is a turn of the loop longer than a limit, memory beyond :func:`memory_limit`, a request that is
neither answered nor its connection closed for a reason in the log, an answer that is wrong in itself, an
error in the log, or the end of the node.

A turn is measured in processor time, which other processes of a busy machine change little. It is a finding
if it is too long each of three times that the request is played, or once more than twice as long as allowed.
What lies between may be the machine; the tally lists it as passing. Full collections of garbage do not count
(:mod:`.metered_loop`). Memory is what Python allocates from the request to its answer, by
tracemalloc, for a share of the requests only, since that makes them several times as slow.
"""

import struct
import tracemalloc
from random import Random
from typing import Final

from pykraft.jepsen_like.simulation.fuzz.answers import PROBE, encode_probe, what_is_wrong
from pykraft.jepsen_like.simulation.fuzz.connection import FuzzConnection
from pykraft.jepsen_like.simulation.fuzz.drawing import Drawn
from pykraft.jepsen_like.simulation.fuzz.fuzzed_node import BROKER, CONTROLLER, FuzzedNode
from pykraft.jepsen_like.simulation.fuzz.tally import NodeLog, Tally
from pykraft.kafka_protocol.api_keys import ApiKey

TURN_LIMIT_MS: Final = 20.0
REPEATS: Final = 3
ONCE: Final = 2
"""How many times the limit a turn may take that does not come again."""
PATIENCE_S: Final = 70.0
"""In virtual time: longer than any limit of the node, or one that a client usually asks for."""
_WAITS: Final = frozenset(
    {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.DELETE_RECORDS}
)
"""What a client may make wait longer: for others, or for a time of its own."""


def memory_limit(frame_bytes: int) -> int:
    """Return the bytes that one request may take."""
    return 8 * frame_bytes + (32 << 20)


class Judge:
    """Judges the requests to one listener of a node: for the share ``measured`` memory, for others turns."""

    def __init__(
        self,
        node: FuzzedNode,
        port: int,
        tally: Tally,
        log: NodeLog,
        rng: Random,
        measured: float,
        turn_limit_ms: float = TURN_LIMIT_MS,
    ) -> None:
        self._node = node
        self._port = port
        self._tally = tally
        self._log = log
        self._rng = rng
        self._measured = measured
        self._turn_limit_ms = turn_limit_ms
        self._connection: FuzzConnection | None = None
        self._probes = 0

    async def play(self, drawn: Drawn) -> None:
        """Play a request, and again if it was found to be too long or too large."""
        tally = self._tally
        tally.requests += 1
        if self._rng.random() < self._measured:
            await self.play_for_memory(drawn)
            return
        limit_ms = self._turn_limit_ms
        first = longest = await self._turn_ms(drawn)
        for _ in range(REPEATS - 1):
            if longest > limit_ms:
                longest = min(longest, await self._turn_ms(drawn))
        tally.longest_ms = max(tally.longest_ms, longest)
        tally.longest_collection_ms = max(
            tally.longest_collection_ms, self._node.loop.longest_collection_ns / 1e6
        )
        if longest > limit_ms:
            self._find(drawn, f"holds the loop for {longest:.1f} ms")
        elif first > ONCE * limit_ms:
            self._find(drawn, f"holds the loop once for {first:.1f} ms")
        elif first > limit_ms:
            tally.passed(first, self._describe(drawn))

    async def play_for_memory(self, drawn: Drawn) -> None:
        """Play a request and measure its memory."""
        tally = self._tally
        tally.measured += 1
        share = await self._memory_share(drawn)
        for _ in range(REPEATS - 1):
            if share > 1:
                share = min(share, await self._memory_share(drawn))
        tally.most_memory = max(tally.most_memory, share)
        if share > 1:
            self._find(drawn, f"takes {share:.1f} times the memory that is allowed")

    async def _turn_ms(self, drawn: Drawn) -> float:
        loop = self._node.loop
        loop.longest_ns = 0
        await self._send(drawn)
        return loop.longest_ns / 1e6

    async def _memory_share(self, drawn: Drawn) -> float:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            await self._send(drawn)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return (peak - before) / memory_limit(len(drawn.frame))

    async def _send(self, drawn: Drawn) -> None:
        connection = self._connection
        if connection is None or connection.is_closed:
            connection = self._connection = await self._node.connect(self._port)
        connection.answers.clear()
        self._log.closings.clear()
        self._probes += 1
        connection.send(drawn.frame, encode_probe(self._probes))
        is_over = await self._until_answered(connection, drawn)
        self._check(drawn)
        if not is_over:
            connection.close()
            self._connection = None
            if struct.unpack_from(">h", drawn.frame)[0] in _WAITS:
                self._tally.waited += 1
            else:
                self._find(drawn, f"is not answered within {PATIENCE_S:g} s")
            return
        if connection.is_closed:
            self._tally.closed += 1
            if not self._log.closings:
                self._find(drawn, "closes the connection without a reason")
            return
        self._tally.answered += 1
        wrong = what_is_wrong(drawn, *connection.answers[0])
        if wrong is not None:
            self._find(drawn, wrong)

    async def _until_answered(self, connection: FuzzConnection, drawn: Drawn) -> bool:
        """Whether the request is answered, or needs no answer, or the connection was closed."""
        for count in (1, 2):
            if not await connection.until(count, PATIENCE_S):
                return False
            if connection.is_closed:
                return True
            head, _ = connection.answers[-1]
            if struct.unpack_from(">i", head)[0] == PROBE + self._probes:
                return True
        return True

    def _check(self, drawn: Drawn) -> None:
        if self._node.failure is not None:
            self._find(drawn, f"ends the node: {self._node.failure!r}")
            raise NodeEndedError
        for text in self._log.errors:
            self._find(drawn, f"is logged: {text}")
        self._log.errors.clear()

    def _find(self, drawn: Drawn, what: str) -> None:
        self._tally.findings.append(f"{self._describe(drawn)} {what}")

    def _describe(self, drawn: Drawn) -> str:
        where = {BROKER: "broker", CONTROLLER: "controller"}[self._port]
        request = f"{drawn.api.key.name} version {drawn.version}"
        return f"{request} ({drawn.what}; {len(drawn.frame)} bytes) to the {where}"


class NodeEndedError(Exception):
    """The node has ended, or would have."""
