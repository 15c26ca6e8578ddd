"""Faults before a broker's handler: which request meets one, how often, and what is remembered of clients."""

import asyncio
from collections.abc import Callable

import pytest

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import decode_request_header, encode_request
from pykraft.kafka_protocol.messages.cluster import MetadataRequest
from pykraft.kafka_protocol.messages.records import ProduceRequest
from pykraft.testing.request_faults import Effect, FaultyHandler, RequestFault, RequestFaults
from tests.broker.links import ConnectedLink
from tests.kafka_client.virtual_cluster import run_virtual

NODE = 1


class Client(ConnectedLink):
    def __init__(self, broker: "Broker", client_id: str = "c") -> None:
        super().__init__(broker.faulty)
        self._client_id = client_id
        self._asked = 0

    def ask(self, request: Message, version: int | None = None) -> None:
        version = request.MAX_VERSION if version is None else version
        self.send(encode_request(request, version, self._asked, self._client_id))
        self._asked += 1


class Broker:
    """Answers at once, but for the requests whose frame it holds first, by their number."""

    def __init__(self) -> None:
        self.faults = RequestFaults()
        self.carried_out: list[int] = []
        self.holds: set[int] = set()
        handler = self.faults.around(NODE)(self)
        assert isinstance(handler, FaultyHandler)
        self.faulty = handler

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        header, _ = decode_request_header(frame)
        if header.correlation_id in self.holds:
            self.holds.remove(header.correlation_id)
            connection.hold_frame(0)
            asyncio.get_running_loop().call_later(0.01, connection.retry_frame)
            return
        self.carried_out.append(header.api_key)
        slot.complete([b"answer"])


def in_a_loop(body: Callable[[Broker], object]) -> None:
    async def main() -> None:
        found = body(Broker())
        if asyncio.iscoroutine(found):
            await found

    run_virtual(main())


def fault(effect: Effect, times: int | None = None, **limits: object) -> RequestFault:
    made = RequestFault(
        effect, ApiKey.METADATA, times=times, error=ErrorCode.LEADER_NOT_AVAILABLE, delay_s=1.0
    )
    for name, value in limits.items():
        setattr(made, name, value)
    return made


METADATA = MetadataRequest(topics=None)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_fault_meets_so_many_requests_and_no_more(times: int) -> None:
    def body(broker: Broker) -> None:
        refused = broker.faults.add(fault(Effect.REFUSE, times))
        client = Client(broker)
        for sent in range(1, 5):
            client.ask(METADATA)
            assert refused.met == min(sent, times)
            assert len(broker.carried_out) == max(0, sent - times)
            assert client.answers == sent
            assert refused.in_force == (sent < times)

    in_a_loop(body)


def test_only_the_requests_that_were_meant_meet_a_fault() -> None:
    def body(broker: Broker) -> None:
        broker.faults.add(fault(Effect.DROP, node=2))
        broker.faults.add(fault(Effect.DROP, client_id="other"))
        client = Client(broker)
        client.ask(METADATA)
        client.ask(ProduceRequest(acks=1), 12)
        assert broker.carried_out == [ApiKey.METADATA, ApiKey.PRODUCE] and not client.closed
        Client(broker, "other").ask(METADATA)
        assert len(broker.carried_out) == 2

    in_a_loop(body)


def test_of_several_faults_the_oldest_takes_a_request() -> None:
    def body(broker: Broker) -> None:
        first, second = broker.faults.add(fault(Effect.REFUSE, 1)), broker.faults.add(fault(Effect.REFUSE, 1))
        client = Client(broker)
        client.ask(METADATA)
        assert (first.met, second.met) == (1, 0)
        client.ask(METADATA)
        assert (first.met, second.met) == (1, 1)

    in_a_loop(body)


def test_a_delayed_request_comes_once_and_those_behind_it_after_it() -> None:
    async def body(broker: Broker) -> None:
        delayed = broker.faults.add(fault(Effect.DELAY, 1))
        client = Client(broker)
        client.ask(METADATA)
        client.ask(ProduceRequest(acks=1), 12)
        await asyncio.sleep(0.9)
        assert broker.carried_out == [] and delayed.met == 1
        await asyncio.sleep(0.2)
        assert broker.carried_out == [ApiKey.METADATA, ApiKey.PRODUCE]
        assert client.answers == 2

    in_a_loop(body)


def test_each_request_is_delayed_by_a_fault_without_a_bound() -> None:
    async def body(broker: Broker) -> None:
        delayed = broker.faults.add(fault(Effect.DELAY))
        client = Client(broker)
        for sent in (1, 2, 3):
            client.ask(METADATA)
            assert len(broker.carried_out) == sent - 1 and delayed.met == sent
            await asyncio.sleep(1.1)
            assert len(broker.carried_out) == sent and delayed.met == sent

    in_a_loop(body)


@pytest.mark.parametrize("effect", [Effect.DELAY, Effect.LOSE_ANSWER])
@pytest.mark.parametrize("times", [None, 1, 2])
def test_a_request_that_the_broker_holds_back_meets_a_fault_once(effect: Effect, times: int | None) -> None:
    """A log that is being opened: the broker gets the same frame again, and so does what is before it."""

    async def body(broker: Broker) -> None:
        met = broker.faults.add(fault(effect, times))
        broker.holds = {0}
        client = Client(broker)
        client.ask(METADATA)
        await asyncio.sleep(1.5)
        assert (met.met, broker.carried_out) == (1, [ApiKey.METADATA])
        assert client.closed == (effect is Effect.LOSE_ANSWER)
        assert client.answers == (effect is Effect.DELAY)

    in_a_loop(body)


@pytest.mark.parametrize("ends", [True, False])
def test_a_request_that_was_held_back_meets_what_it_met_first(ends: bool) -> None:
    """Not a fault that came later, and one that has ended since all the same."""

    async def body(broker: Broker) -> None:
        if ends:
            broker.faults.add(fault(Effect.LOSE_ANSWER))
        broker.holds = {0}
        client = Client(broker)
        client.ask(METADATA)
        broker.faults.clear()
        later = broker.faults.add(fault(Effect.REFUSE))
        await asyncio.sleep(0.1)
        assert broker.carried_out == [ApiKey.METADATA] and later.met == 0
        assert client.closed == ends

    in_a_loop(body)


def test_the_next_request_of_a_connection_meets_faults_anew() -> None:
    async def body(broker: Broker) -> None:
        broker.faults.add(fault(Effect.DELAY, 1))
        client = Client(broker)
        client.ask(METADATA)
        await asyncio.sleep(1.1)
        refused = broker.faults.add(fault(Effect.REFUSE, 1))
        client.ask(METADATA)
        assert refused.met == 1 and broker.carried_out == [ApiKey.METADATA]

    in_a_loop(body)


def test_a_request_whose_client_has_gone_while_it_was_late_is_not_carried_out() -> None:
    async def body(broker: Broker) -> None:
        broker.faults.add(fault(Effect.DELAY))
        client = Client(broker)
        client.ask(METADATA)
        client.connection.close("gone")
        await asyncio.sleep(2)
        assert broker.carried_out == []

    in_a_loop(body)


def test_what_is_remembered_of_clients_goes_with_their_connections() -> None:
    """Of a thousand that came, waited and went, nothing is left when the next one comes."""

    async def body(broker: Broker) -> None:
        broker.faults.add(fault(Effect.DELAY))
        for _ in range(1_000):
            client = Client(broker)
            client.ask(METADATA)
            client.connection.close("gone")
            assert len(broker.faulty._connections) <= 2 and len(broker.faulty._met) <= 2
        stays = Client(broker)
        stays.ask(METADATA)
        assert broker.faulty._connections == {stays.connection} == set(broker.faulty._met)
        await asyncio.sleep(1.1)
        assert stays.answers == 1

    in_a_loop(body)


def test_faults_that_are_over_are_forgotten() -> None:
    def body(broker: Broker) -> None:
        client = Client(broker)
        for _ in range(100):
            broker.faults.add(fault(Effect.REFUSE, 1))
            client.ask(METADATA)
            with broker.faults.add(fault(Effect.REFUSE)) as ended:
                pass
            assert not ended.in_force
        assert len(broker.faults._faults) <= 2
        broker.faults.clear()
        assert not broker.faults

    in_a_loop(body)


def test_faults_end_when_they_are_cleared() -> None:
    def body(broker: Broker) -> None:
        refused = broker.faults.add(fault(Effect.REFUSE))
        broker.faults.clear()
        assert not refused.in_force
        Client(broker).ask(METADATA)
        assert refused.met == 0 and len(broker.carried_out) == 1

    in_a_loop(body)


def test_connections_are_dropped_that_have_sent_a_request_to_the_node() -> None:
    async def body(broker: Broker) -> None:
        clients = [Client(broker), Client(broker)]
        for client in clients:
            client.ask(METADATA)
        broker.faults.drop_connections(2)
        await asyncio.sleep(0.01)
        assert not any(client.closed for client in clients)
        broker.faults.drop_connections(NODE)
        await asyncio.sleep(0.01)
        assert all(client.closed for client in clients)

    in_a_loop(body)


def test_what_is_never_answered_cannot_be_refused_but_by_closing() -> None:
    def body(broker: Broker) -> None:
        broker.faults.add(RequestFault(Effect.REFUSE, ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        client = Client(broker)
        client.ask(ProduceRequest(acks=0), 12)
        assert client.closed and client.answers == 0 and broker.carried_out == []
        client = Client(broker)
        client.ask(ProduceRequest(acks=1), 12)
        assert not client.closed and client.answers == 1 and broker.carried_out == []

    in_a_loop(body)


def test_a_version_that_is_not_served_is_left_to_the_broker() -> None:
    """It is the broker's to answer: nothing here could decode it."""

    def body(broker: Broker) -> None:
        refused = broker.faults.add(fault(Effect.REFUSE))
        frame = bytearray(encode_request(METADATA, METADATA.MAX_VERSION, 0, "c"))
        frame[2:4] = (99).to_bytes(2, "big")
        Client(broker).send(bytes(frame))
        assert refused.met == 0 and broker.carried_out == [ApiKey.METADATA]

    in_a_loop(body)
