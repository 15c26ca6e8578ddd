"""One core of the quorum, stepped by a test."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, Unpack, overload

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.effects import Effect, Reply, ReplyWithRecords
from pykraft.quorum.core.events import (
    Event,
    LogFlushed,
    RequestReceived,
    ResponseReceived,
    Started,
    TimerFired,
)
from pykraft.quorum.core.log_shape import LogShape
from pykraft.quorum.core.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    VoterChangeRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from pykraft.quorum.core.raft_core import RaftCore
from pykraft.quorum.core.recovery import Recovery
from pykraft.quorum.core.roles import ElectionState, Leader, Prospective, Role
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.driver import QuorumConfig
from pykraft.runtime.address import Address
from tests.quorum.fields import VoteResponseFields, WholeFetchFields

E = TypeVar("E", bound=Effect)
R = TypeVar("R", bound=Role)


class CoreBench:
    """One core stepped by a test: events in, effects out."""

    def __init__(
        self,
        *,
        node_id: int = 1,
        voters: int = 3,
        election: ElectionState | None = None,
        epoch_starts: Sequence[tuple[int, int]] = (),
        end_offset: int = 0,
        static: bool = False,
        local: ReplicaKey | None = None,
        local_address: Address | None = None,
        history: VoterHistory | None = None,
        config: QuorumConfig | None = None,
        recovery: Recovery | None = None,
        losses: int = 0,
    ) -> None:
        self.keys = {i: ReplicaKey(i, Uuid(bytes([i]) * 16)) for i in range(1, 10)}
        members = [self.keys[i] for i in range(1, voters + 1)]
        if static:
            members = [ReplicaKey(key.id) for key in members]
        self.voters = VoterSet([Voter(key, Address("test", key.id)) for key in members])
        self.now_ms = 1_000
        self.core = RaftCore(
            config=config or QuorumConfig(),
            cluster_id="c",
            local=local or self.keys[node_id],
            history=history or VoterHistory(self.voters),
            rng=random.Random(1),
            election=election or ElectionState(),
            log=LogShape(end_offset, epoch_starts),
            now_ms=self.now_ms,
            local_address=local_address,
            recovery=recovery,
            losses=losses,
        )
        self.token = 0
        self.effects = self.step(Started())

    @property
    def state(self) -> CoreState:
        return self.core.state

    def role(self, kind: type[R]) -> R:
        """The role, which must be of this type."""
        assert isinstance(self.state.role, kind)
        return self.state.role

    def step(self, event: Event, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        self.effects = self.core.step(event, self.now_ms)
        return self.effects

    @overload
    def ask(self, request: VoteRequest) -> VoteResponse: ...
    @overload
    def ask(self, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse: ...
    @overload
    def ask(self, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse: ...
    @overload
    def ask(self, request: FetchRequest) -> FetchResponse: ...
    @overload
    def ask(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse: ...
    @overload
    def ask(self, request: VoterChangeRequest) -> VoterChangeResponse: ...
    @overload
    def ask(self, request: Request) -> Response: ...
    def ask(self, request: Request) -> Response:
        """The core's answer to a request that it answers at once."""
        response = self.send(request)
        assert response is not None, f"not answered at once: {request}"
        return response

    def send(self, request: Request) -> Response | None:
        """The core's answer to a request; None if the request waits."""
        self.token += 1
        for effect in self.step(RequestReceived(self.token, request)):
            if isinstance(effect, Reply | ReplyWithRecords) and effect.token == self.token:
                return effect.response
        return None

    def of(self, kind: type[E]) -> list[E]:
        """The effects of one type from the last step."""
        return [effect for effect in self.effects if type(effect) is kind]

    def answer(self, response: Response) -> list[Effect]:
        """Answer the last request to ``response.replica``."""
        asked = [c for c, to in self.state.in_flight.items() if to.id == response.replica.id]
        return self.step(ResponseReceived(asked[-1], response))

    def flush(self) -> list[Effect]:
        return self.step(LogFlushed(self.state.log.end_offset, self.state.log.generation))

    def ask_first(self) -> list[Effect]:
        """Let time pass until the replica asks for pre-votes."""
        return self.step(TimerFired(), after_ms=10_000)

    def start_election(self) -> list[Effect]:
        """Let time pass, and a majority grant pre-votes."""
        self.ask_first()
        for node_id in sorted(self.state.other_voters(), reverse=True)[: self.voters.majority - 1]:
            self.answer(self.vote_for(node_id))
        return self.effects

    def vote_for(
        self, node_id: int, granted: bool = True, **changed: Unpack[VoteResponseFields]
    ) -> VoteResponse:
        pre_vote = isinstance(self.state.role, Prospective)
        key = self.keys[node_id]
        answer = VoteResponse("c", key, ErrorCode.NONE, self.state.epoch, None, granted, pre_vote)
        return replace(answer, **changed)

    def lead(self) -> None:
        """Win an election with the vote of 2 and flush the LeaderChange record."""
        self.start_election()
        self.answer(self.vote_for(2))
        assert isinstance(self.state.role, Leader)
        self.flush()

    def fetch(
        self, node_id: int, offset: int, last_epoch: int, **changed: Unpack[WholeFetchFields]
    ) -> FetchResponse | None:
        """The answer to a fetch of another replica; None if the fetch waits."""
        response = self.send(self.fetch_request(node_id, offset, last_epoch, **changed))
        assert response is None or isinstance(response, FetchResponse)
        return response

    def fetch_at_once(
        self, node_id: int, offset: int, last_epoch: int, **changed: Unpack[WholeFetchFields]
    ) -> FetchResponse:
        """The answer to a fetch of another replica that is answered at once."""
        return self.ask(self.fetch_request(node_id, offset, last_epoch, **changed))

    def fetch_request(
        self, node_id: int, offset: int, last_epoch: int, **changed: Unpack[WholeFetchFields]
    ) -> FetchRequest:
        request = FetchRequest("c", self.keys[node_id], self.state.epoch, offset, last_epoch, 0, 500, 1 << 20)
        return replace(request, **changed)
