"""One Fetch from its request to its answer: it reads, perhaps waits and reads again, and answers once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from pykraft.broker.apis.records.fetch_reader import FetchReader, Found
from pykraft.broker.apis.records.leader_hints import find_endpoints
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.fetch_sessions.session import (
    INITIAL_EPOCH,
    NO_SESSION_ID,
    CachedPartition,
    FetchSession,
    Results,
)
from pykraft.broker.replicas.partition.state import FetchWaiter
from pykraft.broker.replicas.replica_selector import RACK_AWARE_SELECTOR
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.hot.fetch_requests import TOPIC_IDS_FROM, FetchRequestView, FetchTopic
from pykraft.kafka_protocol.hot.fetch_responses import build_fetch_response
from pykraft.kafka_protocol.hot.wire import NodeEndpoint
from pykraft.runtime.slices import Slices
from pykraft.runtime.turns import Turns

LOOKED_AT_ONCE = 500
"""The due partitions of a session that are looked at in one slice: some milliseconds."""

_LANE = "fetches of many partitions"


def _raise(error: Exception) -> None:
    raise error


class FetchParts:
    """The parts that all exchanges of one broker share."""

    def __init__(self, services: BrokerServices, reader: FetchReader, turns: Turns) -> None:
        self.reader = reader
        self.turns = turns
        self.sessions = services.fetch_sessions
        self.sessions.in_slices = partial(Slices(turns, "closed fetch sessions").run, on_error=_raise)
        self.wakeups = services.wakeups
        self.clock = services.clock
        self.urgent_high_watermarks = services.config.replica_selector_class == RACK_AWARE_SELECTOR
        self.parked_followers: dict[int, FetchExchange] = {}
        self._replicas = services.replicas
        self._metadata = services.metadata
        self._isr_proposals = services.isr_proposals

    @property
    def is_fenced(self) -> bool:
        return self._replicas.lease.is_fenced

    def watch(self, cached: CachedPartition) -> bool:
        """Subscribe a partition of a session to its replica; whether the client has all it may read there."""
        session, asked = cached.session, cached.asked
        partition = self._replicas.table.look_up(cached.topic, asked.partition)
        if partition is None:
            cached.unsubscribe()
            return False
        if not session.is_follower:
            cached.subscribe(partition.consumer_sessions)
            if session.reads_committed:
                return asked.fetch_offset >= partition.last_stable_offset
            return asked.fetch_offset >= partition.high_watermark
        cached.subscribe(partition.follower_sessions)
        follower = partition.followers.get(session.replica_id)
        if (
            follower is None
            or follower.broker_epoch != session.replica_epoch
            or not partition.has_everything(session.replica_id, asked.fetch_offset)
        ):
            return False
        cached.follower = follower
        follower.counted = cached
        return True

    def may_have_session(self, request: FetchRequestView) -> bool:
        """Consumers may; a follower if it is a broker of the cluster in its current incarnation."""
        if request.replica_id < 0:
            return True
        broker = self._metadata.image.brokers.get(request.replica_id)
        return broker is not None and broker.epoch == request.replica_epoch

    def acknowledge(self, request: FetchRequestView, topics: Iterable[FetchTopic], now_ms: int) -> None:
        """Record what a follower's fetch offsets acknowledge. Errors are answered by the reader."""
        replica_id, broker_epoch = request.replica_id, request.replica_epoch
        for topic in topics:
            for asked in topic.partitions:
                try:
                    partition = self.reader.find(topic, asked, needs_leader=True)
                    if self.reader.diverging(partition, replica_id, asked) is None:
                        self._check_incarnation(replica_id, broker_epoch)
                        partition.handle_follower_fetch(
                            replica_id, asked.fetch_offset, broker_epoch, now_ms, asked.log_start_offset
                        )
                        if partition.followers[replica_id].may_have_found_damage(asked.fetch_offset):
                            self._replicas.check_sent(partition, asked.fetch_offset)
                except KafkaError:
                    continue
                if replica_id not in partition.isr.committed:
                    self._isr_proposals.maybe_propose(partition)

    def _check_incarnation(self, replica_id: int, broker_epoch: int) -> None:
        broker = self._metadata.image.brokers.get(replica_id)
        if broker is not None and 0 <= broker_epoch < broker.epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"replica {replica_id} has a newer incarnation"
            )

    def hinted(self, connection: Connection, results: Results) -> Sequence[NodeEndpoint]:
        """The endpoints of the leaders that results hint at."""
        leaders = {r.leader[0] for _, of_topic in results for r in of_topic if r.leader is not None}
        return find_endpoints(self._metadata.image, leaders, connection.listener_name) if leaders else ()


class FetchExchange:
    """A request that is being answered; ``session`` is that of an incremental request.

    Of the due partitions of a session :data:`LOOKED_AT_ONCE` are looked at, and answered if there is anything
    to tell. The others are left to the next request then, and otherwise looked at in later turns.
    """

    __slots__ = (
        "_acknowledges",
        "_goes_on",
        "_left",
        "_parked_in",
        "_parts",
        "_received_ms",
        "_session",
        "_slot",
        "bucket",
        "connection",
        "header",
        "request",
    )

    def __init__(
        self,
        parts: FetchParts,
        connection: Connection,
        header: RequestHeader,
        request: FetchRequestView,
        slot: ResponseSlot,
        session: FetchSession | None,
        now_ms: int,
    ) -> None:
        self._parts = parts
        self.connection = connection
        self.header = header
        self.request = request
        self._slot = slot
        self._session = session
        self._received_ms = now_ms
        self._parked_in: list[dict[FetchWaiter, None]] = []
        self._acknowledges = request.replica_id >= 0
        """It does so once, when its partitions are looked at for the first time."""
        self._left = 0
        """The due partitions that are still to be looked at."""
        self._goes_on = False
        self.bucket = -1

    def start(self) -> None:
        """Answer now, or wait for more."""
        found = self._look_anew()
        if self.request.max_wait_ms <= 0 or self._suffices(found):
            self._answer(found)
        else:
            self._park()
            self._maybe_go_on()

    def _look_anew(self) -> Found:
        session, request, parts = self._session, self.request, self._parts
        if session is None:
            self._acknowledge(request.topics)
            return parts.reader.read(request, request.topics)
        if not session.is_follower and parts.is_fenced:
            session.look_at_all()  # for a fenced broker every partition has an error
        self._left = len(session.due)
        if self._left > LOOKED_AT_ONCE:
            self._acknowledge(request.topics)  # they may be looked at much later
        return self._look(session)

    def _look(self, session: FetchSession) -> Found:
        """At some of the due partitions."""
        topics = session.due_topics(LOOKED_AT_ONCE)
        self._left -= LOOKED_AT_ONCE
        self._acknowledge(topics)
        return self._parts.reader.read(self.request, topics)

    def _acknowledge(self, topics: Iterable[FetchTopic]) -> None:
        if self._acknowledges:
            self._parts.acknowledge(self.request, topics, self._received_ms)

    def _suffices(self, found: Found) -> bool:
        """Whether to answer what was found. If not, a session notes what need not be looked at again."""
        session, request = self._session, self.request
        if found.is_final or found.size_bytes >= request.min_bytes:
            return True
        if session is None:
            return not request.topics
        has_news = session.settle(found.results, self._parts.watch)
        is_urgent = session.is_follower and self._parts.urgent_high_watermarks
        return has_news and (is_urgent or self._left > 0)

    def _maybe_go_on(self) -> None:
        if self._left > 0 and not self._goes_on:
            self._goes_on = True
            self._parts.turns.defer(self._go_on, _LANE)

    def _go_on(self) -> None:
        """Look at some more."""
        self._goes_on = False
        if self._is_over or self._session is None or self._left <= 0:
            return
        self._parts.wakeups.begin_request()
        try:
            self._take(self._look(self._session))
        finally:
            self._parts.wakeups.end_request()

    def _take(self, found: Found) -> None:
        if self._suffices(found):
            self._leave()
            self._answer(found)
        else:
            self._maybe_go_on()

    def _answer(self, found: Found) -> None:
        parts, session, request = self._parts, self._session, self.request
        results, session_id = found.results, NO_SESSION_ID
        if session is not None:
            session_id = session.id
            results = session.respond(results, parts.watch, is_short=found.is_short)
        elif request.session_epoch == INITIAL_EPOCH and parts.may_have_session(request):
            created = parts.sessions.create(
                request,
                results,
                parts.watch,
                uses_topic_ids=self.header.api_version >= TOPIC_IDS_FROM,
                now_ms=self._received_ms,
            )
            session_id = NO_SESSION_ID if created is None else created.id
        parts.reader.count_sent(results, is_replica=request.replica_id >= 0)
        self._slot.complete_framed(
            build_fetch_response(
                self.header.api_version,
                self.header.correlation_id,
                results,
                session_id=session_id,
                endpoints=parts.hinted(self.connection, results),
            )
        )

    # -- waiting ---------------------------------------------------------------------------------------

    def _park(self) -> None:
        parts, request = self._parts, self.request
        is_replica = request.replica_id >= 0
        if self._session is not None:
            self._session.waiting = self
        else:
            for topic in request.topics:
                for asked in topic.partitions:
                    partition = parts.reader.find(topic, asked, needs_leader=request.needs_leader)
                    waiters = partition.replica_waiters if is_replica else partition.consumer_waiters
                    waiters[self] = None
                    self._parked_in.append(waiters)
        if is_replica:
            parts.parked_followers[self.connection.connection_id] = self
        self._slot.on_abandon = self._leave
        parts.wakeups.wait_until(self, parts.clock.monotonic_ms() + request.max_wait_ms)

    def _leave(self) -> None:
        if self._session is not None and self._session.waiting is self:
            self._session.waiting = None
        for waiters in self._parked_in:
            waiters.pop(self, None)
        parked = self._parts.parked_followers
        if parked.get(self.connection.connection_id) is self:
            del parked[self.connection.connection_id]
        self._parts.wakeups.deadlines.remove(self)

    @property
    def _is_over(self) -> bool:
        return self._slot.done or self._slot.abandoned

    def wake(self) -> None:
        self._parts.wakeups.wake(self)

    def evaluate(self) -> None:
        """Something changed: answer if there is enough, otherwise keep waiting."""
        if self._is_over:
            return
        if self._goes_on:
            assert self._session is not None
            self._left = len(self._session.due)
            return
        self._acknowledges = False
        self._take(self._look_anew())

    def expire(self) -> None:
        """Answer with what there is."""
        if not self._is_over:
            self._leave()
            self._acknowledges = False
            self._answer(self._look_anew())

    def supersede(self, connection: object) -> None:
        """The next request of the session is there. On another connection its client has given this one up:
        what this answer says must not count as told.
        """
        if connection is self.connection:
            self.expire()
        else:
            self.refuse(ErrorCode.INVALID_FETCH_SESSION_EPOCH)

    def refuse(self, code: ErrorCode) -> None:
        """Answer with an error of the whole request."""
        if not self._is_over:
            self._leave()
            self._slot.complete_framed(
                build_fetch_response(
                    self.header.api_version, self.header.correlation_id, [], error_code=int(code)
                )
            )
