"""The broker's registration, heartbeats and calls to the controller: a scripted one, in virtual time."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from pykraft.broker.config import BrokerConfig
from pykraft.broker.membership.alter_partition import ControllerAlterPartition, ControllerLostReplicas
from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.broker.membership.lifecycle import BrokerLifecycle, BrokerState
from pykraft.broker.membership.lifecycle_driver import LifecycleDriver
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.requests import IsrMember, LostReplica, PartitionIsrChange
from pykraft.metadata_log.image import BrokerRegistration
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint
from pykraft.runtime.rpc import RpcAddress, RpcFailure

ONE, TWO = RpcAddress("controller", 1), RpcAddress("controller", 2)
SESSION_MS = 9000


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on which nothing takes time but waiting, and waiting takes none of ours."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.now_s


class _Jump(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everybody waits for something that nobody will do"
        self._loop.now_s += max(timeout, 0)
        return super().select(0)


class LoopClock:
    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


Answer = Callable[[Any], Any]


class Controllers:
    """The transport, and the scripted controllers behind it. An address without a script never answers."""

    def __init__(self) -> None:
        self.leader: RpcAddress | None = ONE
        self.scripts: dict[RpcAddress, dict[str, Answer]] = {}
        self.seen: list[tuple[int, RpcAddress, str, Any]] = []
        self.latency_ms = 1

    def send(
        self,
        to: RpcAddress,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        name = method.rpartition("/")[2]
        request = getattr(pb, f"{name}Request").FromString(payload)
        self.seen.append((round(loop.time() * 1000), to, name, request))

        def answer() -> None:
            script = self.scripts.get(to, {}).get(name)
            told = None if script is None else script(request)
            if told is None:
                later = max(0, deadline_ms - self.latency_ms) / 1000
                loop.call_later(later, on_reply, RpcFailure("DEADLINE_EXCEEDED"))
            else:
                on_reply(told if isinstance(told, RpcFailure) else told.SerializeToString())

        loop.call_later(self.latency_ms / 1000, answer)

    async def close(self) -> None: ...

    def of(self, name: str) -> list[Any]:
        return [request for _, _, method, request in self.seen if method == name]


class World:
    def __init__(self, stopped_in_order_at_epoch: int | None = None, **config: Any) -> None:
        self.controllers = Controllers()
        self.lifecycle = BrokerLifecycle()
        self.metadata_offset = 0
        self.unfenced = BrokerRegistration(7, 10, Uuid(b"i" * 16), (), fenced=False)
        self.clock = LoopClock()
        self.channel = ControllerChannel(
            self.controllers, lambda: self.controllers.leader, self.clock, random.Random(1), b"incarnation"
        )
        self.driver = LifecycleDriver(
            BrokerConfig(node_id=7, cluster_id="c", log_dirs=("/d",), listeners=(), **config),
            self.lifecycle,
            self.channel,
            self.clock,
            incarnation_id=Uuid(b"i" * 16),
            endpoints=lambda: (Endpoint("PLAINTEXT", "h", 9092),),
            log_dir_ids=(Uuid(b"d" * 16),),
            metadata_offset=lambda: self.metadata_offset,
            features={"metadata.version": (7, 30)},
            stopped_in_order_at_epoch=stopped_in_order_at_epoch,
        )
        self.beat: Answer = lambda request: pb.BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= 10,
            is_fenced=request.want_fence or request.current_metadata_offset < 10,
            lease_ms=SESSION_MS,
        )
        self.registered: Answer = lambda request: pb.RegisterBrokerResponse(broker_epoch=10)
        self.controllers.scripts[ONE] = {
            "RegisterBroker": lambda request: self.registered(request),
            "BrokerHeartbeat": lambda request: self.beat(request),
        }

    async def start(self) -> asyncio.Task[None]:
        """Register and get unfenced; the task that goes on heartbeating."""
        await self.driver.register()
        self.metadata_offset = 10
        self.lifecycle.handle_registration_change(self.unfenced)
        running = asyncio.ensure_future(self.driver.run())
        await self.driver.caught_up.wait()
        self.lifecycle.set_ready()
        await self.driver.running.wait()
        return running


def in_virtual_time(scenario: Callable[[World], Coroutine[Any, Any, None]], **config: Any) -> None:
    async def main() -> None:
        await scenario(World(**config))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


# --- registration ----------------------------------------------------------------------------------------


def test_broker_registers_with_all_it_is_and_has() -> None:
    async def scenario(world: World) -> None:
        await world.driver.register()
        (request,) = world.controllers.of("RegisterBroker")
        assert (request.cluster_id, request.broker_id, request.incarnation_id) == ("c", 7, b"i" * 16)
        assert request.endpoints[0].host == "h" and list(request.log_dirs) == [b"d" * 16]
        assert request.features[0].max_level == 30 and not request.HasField("rack")
        assert world.lifecycle.epoch == 10 and world.lifecycle.is_fenced

    in_virtual_time(scenario)


@pytest.mark.parametrize(("stopped", "told"), [(None, -1), (6, 6)])
def test_broker_tells_at_which_epoch_its_logs_were_closed(stopped: int | None, told: int) -> None:
    async def scenario(world: World) -> None:
        await world.start()
        beat = world.beat

        def stale(request: Any) -> Any:
            if request.broker_epoch == 10:
                return pb.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            return beat(request)

        world.beat = stale
        world.registered = lambda request: pb.RegisterBrokerResponse(broker_epoch=20)
        await asyncio.sleep(5)
        first, again = world.controllers.of("RegisterBroker")
        assert first.previous_broker_epoch == told
        assert again.previous_broker_epoch == 10, "the same process: nothing of its logs is gone"

    in_virtual_time(scenario, stopped_in_order_at_epoch=stopped)


def test_registration_waits_out_the_session_of_a_killed_predecessor(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        lapses_ms = world.clock.monotonic_ms() + SESSION_MS

        def registered(request: Any) -> Any:
            if world.clock.monotonic_ms() < lapses_ms:
                return pb.RegisterBrokerResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            return pb.RegisterBrokerResponse(broker_epoch=11)

        world.registered = registered
        await world.driver.register()
        assert world.lifecycle.epoch == 11
        assert world.clock.monotonic_ms() - lapses_ms < 500
        told = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
        assert len(told) == 1 and told[0].startswith("waiting for the session of a predecessor to lapse")

    in_virtual_time(scenario)


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION])
def test_refused_registration_is_not_tried_again(code: ErrorCode) -> None:
    async def scenario(world: World) -> None:
        world.registered = lambda request: pb.RegisterBrokerResponse(error_code=code, error_message="no")
        with pytest.raises(KafkaError) as refusal:
            await world.driver.register()
        assert refusal.value.code is code and len(world.controllers.of("RegisterBroker")) == 1

    in_virtual_time(scenario)


def test_registration_gives_up_when_its_time_is_over() -> None:
    async def scenario(world: World) -> None:
        world.controllers.leader = None
        began_ms = world.clock.monotonic_ms()
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await world.driver.register()
        assert 60_000 <= world.clock.monotonic_ms() - began_ms < 61_000

    in_virtual_time(scenario)


# --- heartbeats ------------------------------------------------------------------------------------------


def test_broker_asks_to_be_unfenced_only_when_it_is_ready() -> None:
    async def scenario(world: World) -> None:
        await world.driver.register()
        running = asyncio.ensure_future(world.driver.run())
        await asyncio.sleep(1)
        assert not world.driver.caught_up.is_set()
        world.metadata_offset = 10
        await asyncio.sleep(1)
        assert world.driver.caught_up.is_set() and not world.driver.running.is_set()
        assert all(beat.want_fence for beat in world.controllers.of("BrokerHeartbeat"))
        world.lifecycle.set_ready()
        world.lifecycle.handle_registration_change(world.unfenced)
        await asyncio.sleep(1)
        assert world.driver.running.is_set() and not world.lifecycle.is_fenced
        running.cancel()

    in_virtual_time(scenario)


def test_lease_is_counted_from_when_the_heartbeat_was_sent() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        world.controllers.latency_ms = 700
        await asyncio.sleep(10)
        sent_ms = [at for at, _, name, _ in world.controllers.seen if name == "BrokerHeartbeat"][-1]
        world.controllers.scripts.clear()
        await asyncio.sleep(0.8)
        assert world.lifecycle.lease_valid(sent_ms + SESSION_MS - 1)
        assert not world.lifecycle.lease_valid(sent_ms + SESSION_MS)

    in_virtual_time(scenario)


def test_unanswered_heartbeat_is_soon_sent_again() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        beat, world.beat = world.beat, lambda request: None
        await asyncio.sleep(4.2)  # one heartbeat interval, and one attempt that nobody answers
        world.beat = beat
        sent_ms = world.clock.monotonic_ms()
        await asyncio.sleep(2.3)
        assert world.lifecycle.lease_valid(sent_ms + SESSION_MS - 1)

    in_virtual_time(scenario)


async def keeps_its_lease(world: World, duration_ms: int) -> None:
    """Wait so long, and see that the lease holds all the time."""
    for _ in range(duration_ms // 10):
        assert world.lifecycle.lease_valid(world.clock.monotonic_ms()), "it lapsed before the next heartbeat"
        await asyncio.sleep(0.01)


def test_lease_that_an_answer_did_not_renew_is_asked_for_again_before_it_ends() -> None:
    """A new controller grants nothing before it knows that the broker follows."""

    async def scenario(world: World) -> None:
        def beat(request: Any) -> Any:
            answered = len(world.controllers.of("BrokerHeartbeat"))
            return pb.BrokerHeartbeatResponse(
                is_caught_up=True, lease_ms=0 if answered == grants_not else 3000
            )

        grants_not = -1
        await world.start()
        world.beat = beat
        await asyncio.sleep(10)
        grants_not = len(world.controllers.of("BrokerHeartbeat")) + 1
        await keeps_its_lease(world, 10_000)
        assert len(world.controllers.of("BrokerHeartbeat")) > grants_not

    in_virtual_time(scenario)


def test_leases_of_a_broker_that_is_always_a_little_behind_do_not_lapse_between_rare_heartbeats() -> None:
    """They are counted from when it was last asked how far it is: from the heartbeat before."""

    async def scenario(world: World) -> None:
        asked_ms = world.clock.monotonic_ms()

        def beat(request: Any) -> Any:
            nonlocal asked_ms
            since_ms, asked_ms = world.clock.monotonic_ms() - asked_ms, world.clock.monotonic_ms()
            return pb.BrokerHeartbeatResponse(is_caught_up=True, lease_ms=max(0, 8100 - since_ms))

        world.beat = beat
        await world.start()
        began = len(world.controllers.of("BrokerHeartbeat"))
        await keeps_its_lease(world, 60_000)
        assert len(world.controllers.of("BrokerHeartbeat")) - began < 30

    in_virtual_time(scenario, heartbeat_interval_ms=5000)


def test_broker_without_a_lease_asks_for_one_without_haste() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        world.beat = lambda request: pb.BrokerHeartbeatResponse(is_caught_up=True)
        await asyncio.sleep(SESSION_MS / 1000)
        before = len(world.controllers.of("BrokerHeartbeat"))
        await asyncio.sleep(5)
        assert 40 <= len(world.controllers.of("BrokerHeartbeat")) - before <= 51

    in_virtual_time(scenario)


def test_paused_controller_is_left_as_soon_as_another_one_leads() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        world.controllers.scripts[TWO] = world.controllers.scripts.pop(ONE)
        await asyncio.sleep(2)
        world.controllers.leader = TWO
        await asyncio.sleep(0.5)
        assert world.controllers.seen[-1][1] == TWO

    in_virtual_time(scenario)


def test_fenced_broker_serves_nobody_until_it_is_unfenced_again() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        beat, world.beat = (
            world.beat,
            lambda request: pb.BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True),
        )
        await asyncio.sleep(2.1)
        assert world.lifecycle.is_fenced
        assert not world.lifecycle.lease_valid(world.clock.monotonic_ms())
        assert world.lifecycle.epoch == 10
        world.beat = beat
        await asyncio.sleep(0.1)
        assert not world.lifecycle.is_fenced and world.lifecycle.state is BrokerState.RUNNING
        assert len(world.controllers.of("RegisterBroker")) == 1

    in_virtual_time(scenario)


def test_stale_epoch_fences_at_once_and_registers_anew() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        beat = world.beat
        others_session_ends_ms = world.clock.monotonic_ms() + SESSION_MS

        def stale(request: Any) -> Any:
            if request.broker_epoch == 10:
                return pb.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            return beat(request)

        def registered(request: Any) -> Any:
            if world.clock.monotonic_ms() < others_session_ends_ms:
                return pb.RegisterBrokerResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            return pb.RegisterBrokerResponse(broker_epoch=20)

        world.beat, world.registered = stale, registered
        await asyncio.sleep(2.5)
        assert world.lifecycle.is_fenced
        assert not world.lifecycle.lease_valid(world.clock.monotonic_ms())
        world.metadata_offset = 20
        world.lifecycle.handle_registration_change(replace(world.unfenced, epoch=20))
        await asyncio.sleep(SESSION_MS / 1000)
        assert world.lifecycle.epoch == 20 and not world.lifecycle.is_fenced

    in_virtual_time(scenario)


def test_controlled_shutdown_ends_when_the_controller_lets_the_broker_go() -> None:
    async def scenario(world: World) -> None:
        running = await world.start()
        leads_until_ms = world.clock.monotonic_ms() + 300

        def beat(request: Any) -> Any:
            done = request.want_shut_down and world.clock.monotonic_ms() >= leads_until_ms
            return pb.BrokerHeartbeatResponse(is_caught_up=True, is_fenced=done, should_shut_down=done)

        world.beat = beat
        began_ms = world.clock.monotonic_ms()
        await world.driver.shut_down(15_000)
        assert 300 <= world.clock.monotonic_ms() - began_ms < 500
        assert world.lifecycle.state is BrokerState.SHUTTING_DOWN and world.lifecycle.is_fenced
        await running

    in_virtual_time(scenario)


def test_broker_that_never_served_says_good_bye_too() -> None:
    async def scenario(world: World) -> None:
        await world.driver.register()
        running = asyncio.ensure_future(world.driver.run())
        await asyncio.sleep(0.1)

        def beat(request: Any) -> Any:
            return pb.BrokerHeartbeatResponse(is_fenced=True, should_shut_down=request.want_shut_down)

        world.beat = beat
        began_ms = world.clock.monotonic_ms()
        await world.driver.shut_down(2000)
        assert world.clock.monotonic_ms() - began_ms < 100
        await running

    in_virtual_time(scenario)


def test_broker_whose_id_was_taken_has_nothing_to_hand_over() -> None:
    async def scenario(world: World) -> None:
        running = await world.start()
        world.beat = lambda request: pb.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        began_ms = world.clock.monotonic_ms()
        await world.driver.shut_down(15_000)
        assert world.clock.monotonic_ms() - began_ms < 100
        await running
        assert not world.lifecycle.is_registered and len(world.controllers.of("RegisterBroker")) == 1

    in_virtual_time(scenario)


def test_controlled_shutdown_without_a_controller_takes_no_longer_than_allowed() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        world.controllers.leader = None
        began_ms = world.clock.monotonic_ms()
        await world.driver.shut_down(2_000)
        assert world.clock.monotonic_ms() - began_ms <= 2_001

    in_virtual_time(scenario)


def test_last_broker_of_a_quorum_that_is_gone_does_not_wait_for_all_of_its_time() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        world.controllers.leader = None
        began_ms = world.clock.monotonic_ms()
        await world.driver.shut_down(15_000)
        assert world.clock.monotonic_ms() - began_ms <= 5_001

    in_virtual_time(scenario)


def test_controlled_shutdown_goes_on_while_a_controller_answers() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        world.beat = lambda request: pb.BrokerHeartbeatResponse(is_caught_up=True)
        began_ms = world.clock.monotonic_ms()
        await world.driver.shut_down(15_000)
        assert 15_000 <= world.clock.monotonic_ms() - began_ms <= 15_001

    in_virtual_time(scenario)


# --- the channel -----------------------------------------------------------------------------------------


def allocate(world: World, timeout_ms: int) -> Coroutine[Any, Any, Any]:
    request = pb.AllocateProducerIdsRequest(broker_id=7, broker_epoch=10)
    parse = pb.AllocateProducerIdsResponse.FromString
    return world.channel.call("AllocateProducerIds", request, parse, timeout_ms)


def test_call_follows_the_controller_through_an_election() -> None:
    async def scenario(world: World) -> None:
        controllers = world.controllers
        controllers.scripts[ONE]["AllocateProducerIds"] = lambda request: pb.AllocateProducerIdsResponse(
            error_code=ErrorCode.NOT_CONTROLLER
        )
        controllers.scripts[TWO] = {
            "AllocateProducerIds": lambda request: pb.AllocateProducerIdsResponse(start=5, length=1000)
        }
        call = asyncio.ensure_future(allocate(world, 10_000))
        await asyncio.sleep(0.3)
        controllers.leader = None
        await asyncio.sleep(1)
        controllers.leader = TWO
        await asyncio.sleep(0.1)
        assert call.done() and call.result().start == 5

    in_virtual_time(scenario)


def test_refusal_is_raised_with_the_controllers_code_and_words() -> None:
    async def scenario(world: World) -> None:
        world.controllers.scripts[ONE]["AllocateProducerIds"] = lambda request: (
            pb.AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, error_message="old")
        )
        with pytest.raises(KafkaError) as refusal:
            await allocate(world, 10_000)
        assert (refusal.value.code, refusal.value.message) == (ErrorCode.STALE_BROKER_EPOCH, "old")

    in_virtual_time(scenario)


def test_call_that_nobody_answers_times_out_and_says_why() -> None:
    async def scenario(world: World) -> None:
        began_ms = world.clock.monotonic_ms()
        with pytest.raises(KafkaError, match="DEADLINE_EXCEEDED") as refusal:
            await allocate(world, 7000)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert 7000 <= world.clock.monotonic_ms() - began_ms < 7200

    in_virtual_time(scenario)


def test_forwarded_request_leaves_a_paused_controller_when_another_one_leads() -> None:
    async def scenario(world: World) -> None:
        controllers = world.controllers
        controllers.scripts = {TWO: {"Forward": lambda request: pb.ForwardResponse(body=request.body)}}
        began_ms = world.clock.monotonic_ms()
        call = asyncio.ensure_future(
            world.channel.forward(
                19,
                7,
                b"body",
                principal="p",
                client_id="c",
                client_address="a",
                listener="l",
                timeout_ms=30_000,
            )
        )
        await asyncio.sleep(2.5)
        controllers.leader = TWO
        assert await call == b"body"
        assert world.clock.monotonic_ms() - began_ms < 3000

    in_virtual_time(scenario)


def test_forwarded_request_keeps_its_name_over_all_attempts() -> None:
    async def scenario(world: World) -> None:
        controllers = world.controllers
        answers: list[Any] = [
            pb.ForwardResponse(error_code=ErrorCode.NOT_CONTROLLER),
            RpcFailure("UNAVAILABLE"),
            pb.ForwardResponse(body=b"done"),
            pb.ForwardResponse(body=b"done"),
        ]
        controllers.scripts = {ONE: {"Forward": lambda request: answers.pop(0)}}
        for _ in range(2):
            caller = {"principal": "p", "client_id": "c", "client_address": "a", "listener": "l"}
            assert await world.channel.forward(19, 7, b"body", timeout_ms=30_000, **caller) == b"done"
        requests = controllers.of("Forward")
        assert [request.attempt for request in requests] == [0, 1, 2, 0]
        names = [request.request_id for request in requests]
        assert names[0] == names[1] == names[2] != names[3]
        assert all(name.startswith(b"incarnation") for name in names), "no other process uses them"

    in_virtual_time(scenario)


def test_isr_proposals_travel_in_one_request_and_each_comes_back_with_its_answer() -> None:
    one, two = Uuid(b"1" * 16), Uuid(b"2" * 16)
    members = (IsrMember(7, 10), IsrMember(8, 12))
    changes = [
        PartitionIsrChange(one, 3, 4, 5, members),
        PartitionIsrChange(two, 0, 1, 1, members),
        PartitionIsrChange(one, 0, 2, 2, (IsrMember(7, 10),)),
    ]

    async def scenario(world: World) -> None:
        await world.driver.register()

        def alter(request: Any) -> Any:
            taken = pb.AlterPartitionPartitionResult(
                index=3, leader=7, leader_epoch=4, isr=[7, 8], partition_epoch=6
            )
            refused = pb.AlterPartitionPartitionResult(index=0, error_code=ErrorCode.INELIGIBLE_REPLICA)
            return pb.AlterPartitionResponse(
                topics=[
                    pb.AlterPartitionTopicResult(topic_id=two, partitions=[refused]),
                    pb.AlterPartitionTopicResult(topic_id=one, partitions=[taken]),
                ]
            )

        world.controllers.scripts[ONE]["AlterPartition"] = alter
        port = ControllerAlterPartition(7, world.lifecycle, world.channel)
        taken, refused, forgotten = await port.alter_partitions(changes)
        (request,) = world.controllers.of("AlterPartition")
        assert (request.broker_id, request.broker_epoch) == (7, 10)
        assert [(topic.topic_id, [it.index for it in topic.partitions]) for topic in request.topics] == [
            (one, [3, 0]),
            (two, [0]),
        ]
        sent = request.topics[0].partitions[0]
        assert (sent.index, sent.leader_epoch, sent.partition_epoch) == (3, 4, 5)
        assert [(m.broker_id, m.broker_epoch) for m in sent.new_isr] == [(7, 10), (8, 12)]
        assert taken.error is ErrorCode.NONE
        assert (taken.leader, taken.leader_epoch, taken.isr, taken.partition_epoch) == (7, 4, (7, 8), 6)
        assert refused.error is ErrorCode.INELIGIBLE_REPLICA
        assert forgotten.error is ErrorCode.UNKNOWN_SERVER_ERROR

    in_virtual_time(scenario)


def test_report_of_lost_replicas_says_as_of_which_leader_epochs() -> None:
    one = Uuid(b"1" * 16)

    async def scenario(world: World) -> None:
        await world.driver.register()
        world.controllers.scripts[ONE]["ReportLostReplicas"] = lambda _request: pb.ReportLostReplicasResponse(
            partitions=[
                pb.LostReplicaResult(topic_id=one, index=3, partition_epoch=9),
                pb.LostReplicaResult(topic_id=one, index=0, error_code=ErrorCode.FENCED_LEADER_EPOCH),
            ]
        )
        port = ControllerLostReplicas(7, world.lifecycle, world.channel)
        taken, refused = await port.report_lost_replicas([LostReplica(one, 3, 4), LostReplica(one, 0, 0)])
        (request,) = world.controllers.of("ReportLostReplicas")
        assert (request.broker_id, request.broker_epoch) == (7, 10)
        sent = [(lost.topic_id, lost.index, lost.leader_epoch) for lost in request.partitions]
        assert sent == [(one, 3, 4), (one, 0, 0)]
        assert (taken.error, taken.partition_epoch) == (ErrorCode.NONE, 9)
        assert refused.error is ErrorCode.FENCED_LEADER_EPOCH

    in_virtual_time(scenario)


def test_calls_that_are_refused_come_back_ever_more_seldom_until_another_node_leads() -> None:
    async def scenario(world: World) -> None:
        def refuse(request: Any) -> Any:
            return pb.AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)

        world.controllers.scripts[ONE]["AllocateProducerIds"] = refuse
        world.controllers.scripts[TWO] = {
            "AllocateProducerIds": lambda request: pb.AllocateProducerIdsResponse(start=5, length=1)
        }
        call = asyncio.ensure_future(allocate(world, 60_000))
        await asyncio.sleep(20)
        asked_ms = [
            at_ms for at_ms, _, method, _ in world.controllers.seen if method == "AllocateProducerIds"
        ]
        assert 20 <= len(asked_ms) <= 45, "once a second or less often, after a few quick attempts"
        world.controllers.leader = TWO
        await asyncio.sleep(0.1)
        assert call.done(), "another node that leads is asked at once"
        assert (await call).start == 5

    in_virtual_time(scenario)


def test_while_another_broker_leaves_reports_come_often() -> None:
    def registered(broker_id: int, **fields: Any) -> BrokerRegistration:
        return BrokerRegistration(broker_id, 1, Uuid(b"i" * 16), (), **{"fenced": False, **fields})

    async def scenario(world: World) -> None:
        await world.start()
        leaving = {7: registered(7), 8: registered(8, in_controlled_shutdown=True)}

        async def beats_in(duration_ms: int) -> int:
            before = len(world.controllers.of("BrokerHeartbeat"))
            await asyncio.sleep(duration_ms / 1000)
            return len(world.controllers.of("BrokerHeartbeat")) - before

        world.driver.handle_brokers({7: registered(7)})
        assert await beats_in(4000) <= 3
        world.driver.handle_brokers(leaving)
        assert await beats_in(1000) >= 8
        world.driver.handle_brokers({7: registered(7), 8: registered(8, fenced=True)})
        await asyncio.sleep(0.2)
        assert await beats_in(4000) <= 3
        world.driver.handle_brokers({7: registered(7, in_controlled_shutdown=True)})
        assert await beats_in(4000) <= 3, "its own leave is another matter"

    in_virtual_time(scenario)
