"""A voter with an outdated voter set finds the current leader, and disturbs no other replica (KIP-853)."""

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import Effect, Send
from pykraft.quorum.core.events import RequestFailed, ResponseReceived, TimerFired
from pykraft.quorum.core.messages import BeginQuorumEpochRequest, FetchRequest, FetchResponse
from pykraft.quorum.core.roles import ElectionState, Follower, Leader, Prospective
from pykraft.runtime.address import Address
from tests.narrowing import as_type, present
from tests.quorum.bench import CoreBench

ELSEWHERE = Address("test", 77)
SERVER = Address("test", 88)


def _prospective(leader_id: int | None = 2, config: QuorumConfig | None = None) -> CoreBench:
    """1 gets no answer from its leader of epoch 5, and searches."""
    b = CoreBench(election=ElectionState(5, leader_id), config=config)
    b.ask_first()
    assert isinstance(b.state.role, Prospective)
    return b


def _fail_all_requests(b: CoreBench) -> list[Send]:
    """Fail every open request; returns the requests that follow."""
    asked = []
    for correlation_id in list(b.state.in_flight):
        b.step(RequestFailed(correlation_id))
        asked += [send for send in b.of(Send) if isinstance(send.request, FetchRequest)]
    return asked


def _answer(
    b: CoreBench,
    send: Send,
    node_id: int,
    error: ErrorCode = ErrorCode.FENCED_LEADER_EPOCH,
    epoch: int = 5,
    leader_id: int | None = 2,
    address: Address | None = ELSEWHERE,
) -> list[Effect]:
    response = FetchResponse("c", b.keys[node_id], error, epoch, leader_id, leader_address=address)
    return b.step(ResponseReceived(send.correlation_id, response))


def _refuse(b: CoreBench, leader_id: int | None = 2, address: Address | None = ELSEWHERE) -> list[Send]:
    """3 is in contact with a leader, 2 cannot be reached."""
    b.answer(b.vote_for(3, granted=False, leader_id=leader_id, leader_address=address))
    return _fail_all_requests(b)


def test_leader_that_moved_is_asked_at_the_address_others_name_and_followed_once_it_confirms() -> None:
    b = _prospective()
    (question,) = _refuse(b)
    assert (question.to, question.address) == (2, ELSEWHERE) and isinstance(b.state.role, Prospective)
    _answer(b, question, 2)
    assert isinstance(b.state.role, Follower) and b.state.leader_address == ELSEWHERE
    assert b.state.epoch == 5


def test_leader_outside_the_voter_set_is_not_followed_because_others_name_it() -> None:
    """Its fetches would count as contact for a leader that it cannot hear: no other could be elected."""
    b = _prospective(leader_id=4)
    for _ in range(20):
        questions = _refuse(b, leader_id=4)
        assert isinstance(b.state.role, Prospective)
        assert {send.address for send in questions} <= {ELSEWHERE}
        assert not any(as_type(send.request, FetchRequest).epoch for send in questions)
        b.step(TimerFired(), after_ms=2_500)


def test_search_request_is_refused_by_a_leader_and_does_not_count_as_contact() -> None:
    (question,) = _refuse(_prospective())
    asked = as_type(question.request, FetchRequest)
    leader = CoreBench(node_id=1)
    leader.lead()
    before = leader.role(Leader).progress[3].last_fetch_ms
    leader.now_ms += 500
    answer = leader.fetch(3, asked.fetch_offset, 0, epoch=asked.epoch)
    assert (present(answer).error, present(answer).leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, 1)
    assert leader.role(Leader).progress[3].last_fetch_ms == before


def test_search_request_acknowledges_nothing_and_waits_for_nothing() -> None:
    b = _prospective()
    (question,) = _refuse(b)
    asked = as_type(question.request, FetchRequest)
    assert (asked.cluster_id, asked.replica) == ("c", b.keys[1])
    assert (asked.epoch, asked.fetch_offset, asked.last_fetched_epoch, asked.high_watermark) == (0, 0, 0, 0)
    assert (asked.max_wait_ms, asked.announced) == (0, None)


def test_voter_that_reaches_no_known_voter_asks_the_bootstrap_servers() -> None:
    """It was removed while it was down, and the others were replaced one by one."""
    b = _prospective(config=QuorumConfig(bootstrap_servers=(Address("test", 3), SERVER)))
    (question,) = _fail_all_requests(b)
    assert question.to < 0 and question.address == SERVER
    _answer(b, question, 7, epoch=9, leader_id=8)
    assert isinstance(b.state.role, Follower) and (b.state.epoch, b.state.leader_address) == (9, ELSEWHERE)


def test_unanswered_search_request_is_repeated_and_raises_no_epoch() -> None:
    b = _prospective(config=QuorumConfig(bootstrap_servers=(SERVER,)))
    for _ in range(5):
        (question,) = _fail_all_requests(b)
        b.step(RequestFailed(question.correlation_id))
        b.step(TimerFired(), after_ms=2_500)
    assert isinstance(b.state.role, Prospective) and b.state.election == ElectionState(5, 2)
    assert b.state.role.refused <= {2, 3}


def test_no_search_request_is_sent_while_the_pre_vote_may_be_won() -> None:
    b = _prospective(config=QuorumConfig(bootstrap_servers=(SERVER,)))
    b.answer(b.vote_for(3, granted=False, leader_id=2, leader_address=ELSEWHERE))
    assert b.of(Send) == []


def test_leader_that_sent_its_new_address_is_asked_there_after_each_lost_pre_vote() -> None:
    b = CoreBench(election=ElectionState(5, 2))
    b.send(BeginQuorumEpochRequest("c", b.keys[2], b.keys[1], 5, ELSEWHERE))
    b.ask_first()
    for _ in range(3):
        (question,) = _fail_all_requests(b)
        assert question.address == ELSEWHERE and isinstance(b.state.role, Prospective)
        b.step(TimerFired(), after_ms=2_500)
