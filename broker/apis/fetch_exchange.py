"""One Fetch from its request to its answer: it reads, perhaps waits and reads again, and answers once."""

from __future__ import annotations

from pykraft.broker.apis.fetch_reader import FetchReader, Found
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.fetch_session import INITIAL_EPOCH, NO_SESSION_ID, CachedPartition, FetchSession, Results
from pykraft.broker.leader_hints import find_endpoints
from pykraft.broker.replica_selector import RACK_AWARE_SELECTOR
from pykraft.broker.replicas.partition import FetchWaiter
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.fetch_fast import TOPIC_IDS_FROM, FetchRequestView, build_fetch_response
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.runtime.streams import Chunk


class FetchParts:
    """What all exchanges of one broker share."""

    def __init__(self, services: BrokerServices, reader: FetchReader) -> None:
        self.reader = reader
        self.sessions = services.fetch_sessions
        self.wakeups = services.wakeups
        self.clock = services.clock
        self.urgent_high_watermarks = services.config.replica_selector_class == RACK_AWARE_SELECTOR
        self.parked_followers: dict[int, FetchExchange] = {}
        self._replicas = services.replicas
        self._metadata = services.metadata

    @property
    def is_fenced(self) -> bool:
        return self._replicas.lease.is_fenced

    def watch(self, cached: CachedPartition) -> bool:
        """Subscribe a partition of a session to its replica here; returns whether the client has everything
        that it may read there.
        """
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

    def build_answer(self, exchange: FetchExchange, results: Results, session_id: int) -> list[Chunk]:
        header = exchange.header
        leaders = [r.leader[0] for _, of_topic in results for r in of_topic if r.leader is not None]
        listener = exchange.connection.listener_name
        return build_fetch_response(
            header.api_version,
            header.correlation_id,
            results,
            session_id=session_id,
            endpoints=find_endpoints(self._metadata.image, leaders, listener) if leaders else (),
        )


class FetchExchange:
    """A request that is being answered; ``session`` is that of an incremental request."""

    __slots__ = (
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
        self.bucket = -1

    def start(self) -> None:
        """Answer now, or wait for more."""
        found = self._look()
        if self.request.max_wait_ms <= 0 or self._suffices(found):
            self._answer(found.results)
        else:
            self._park()

    def _look(self) -> Found:
        session, request = self._session, self.request
        if session is None:
            return self._parts.reader.read(request, request.topics)
        if not session.is_follower and self._parts.is_fenced:
            session.look_at_all()  # for a fenced broker every partition has an error
        return self._parts.reader.read(request, session.due_topics())

    def _suffices(self, found: Found) -> bool:
        """Whether to answer what was found. If not, a session notes what need not be looked at again."""
        session, request = self._session, self.request
        if found.is_final or found.size_bytes >= request.min_bytes:
            return True
        if session is None:
            return not request.topics
        has_news = session.settle(found.results, self._parts.watch)
        return has_news and session.is_follower and self._parts.urgent_high_watermarks

    def _answer(self, results: Results) -> None:
        parts, session, request = self._parts, self._session, self.request
        session_id = NO_SESSION_ID
        if session is not None:
            session_id = session.id
            results = session.respond(results, parts.watch)
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
        self._slot.complete_framed(parts.build_answer(self, results, session_id))

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
        found = self._look()
        if self._suffices(found):
            self._leave()
            self._answer(found.results)

    def expire(self) -> None:
        """Answer with what there is."""
        if not self._is_over:
            self._leave()
            self._answer(self._look().results)

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
