"""The partitions of brokers that fail and return: none is missed, and no broker returns too early."""

import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest

from pykraft.jepsen_like.simulation.cluster.checks.image_invariants import check_final
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.kafka_protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from pykraft.metadata_log.controller import sweeps
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.sweeps import Sweeps
from pykraft.metadata_log.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.metadata_log.records import LogsLost, PartitionRecord, Record, RegisterBrokerRecord, TopicRecord
from pykraft.metadata_log.replay import replay
from tests.metadata_log.controller.test_controller_properties import Commands
from tests.metadata_log.harness import ControllerHarness, walk_in_slices

SMALL = 4


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "SLICE_CHANGES", SMALL)
    walk_in_slices(monkeypatch, 10)


@pytest.fixture
def stepped(cluster: ControllerHarness, small_slices: None) -> ControllerHarness:
    """Three brokers, each with twelve leaderships; sweeps are run by hand."""
    for number in range(6):
        cluster.create_assigned(f"t{number}", *[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2)
    cluster.commit()
    cluster.sweeps_at_once = False
    return cluster


def led_by(harness: ControllerHarness, broker_id: int) -> int:
    topics = harness.image.topics_by_id.values()
    return sum(partition.leader == broker_id for topic in topics for partition in topic.partitions)


def test_broker_is_fenced_first_and_its_partitions_follow_slice_by_slice(stepped: ControllerHarness) -> None:
    before = len(stepped.log)
    stepped.stop_heartbeats(1)
    assert [len(batch.values) for batch in stepped.log[before:]] == [1], "the fence waits for nothing"
    assert led_by(stepped, 1) == 12
    with pytest.raises(InvariantViolation, match="led_partitions_have_active_isr"):
        check_final(stepped.image)
    slices = stepped.sweep()
    assert slices > 5
    assert max(len(batch.values) for batch in stepped.log[before:]) <= SMALL
    assert led_by(stepped, 1) == 0
    assert all(1 not in p.isr for t in stepped.image.topics_by_id.values() for p in t.partitions)


def test_fenced_broker_returns_only_after_the_sweep_of_its_partitions(stepped: ControllerHarness) -> None:
    stepped.stop_heartbeats(1)
    while stepped.core.is_sweeping:
        assert stepped.heartbeat(1).is_fenced
        stepped.sweep(1)
    assert not stepped.heartbeat(1).is_fenced


def test_broker_that_shuts_down_stops_only_when_its_leaderships_have_moved(
    stepped: ControllerHarness,
) -> None:
    stepped.heartbeat(1, want_shut_down=True)
    while stepped.core.is_sweeping:
        answer = stepped.heartbeat(1, want_shut_down=True)
        assert not answer.should_shut_down and not answer.is_fenced
        stepped.sweep(1)
    assert led_by(stepped, 1) == 0
    stepped.heartbeat(1, want_shut_down=True)
    stepped.heartbeat_active_brokers()
    assert stepped.heartbeat(1, want_shut_down=True).should_shut_down


def test_new_process_that_lost_records_is_out_of_every_isr_before_it_is_unfenced(
    stepped: ControllerHarness,
) -> None:
    stepped.stop_heartbeats(1, 2, 3)  # no partition has a leader, and all replicas are still in the ISRs
    stepped.sweep()
    stepped.register(1, incarnation=2)
    stepped.sweep(2)
    assert any(1 in p.isr for t in stepped.image.topics_by_id.values() for p in t.partitions)
    assert stepped.heartbeat(1).is_fenced
    stepped.sweep()
    assert not any(1 in p.isr for t in stepped.image.topics_by_id.values() for p in t.partitions)
    assert not stepped.heartbeat(1).is_fenced
    stepped.sweep()
    assert led_by(stepped, 1) == 0


def test_loss_of_a_process_counts_until_its_successor_is_unfenced(stepped: ControllerHarness) -> None:
    stepped.stop_heartbeats(1)
    stepped.register(1, incarnation=2)
    assert stepped.image.brokers[1].logs_lost == LogsLost.TAIL
    stepped.sweep(1)
    epoch = stepped.image.brokers[1].epoch
    stepped.now_ms += stepped.config.session_timeout_ms
    # The third process reports that the second one stopped in order; the first did not.
    stepped.register(1, incarnation=3, previous_broker_epoch=epoch)
    assert stepped.image.brokers[1].logs_lost == LogsLost.TAIL
    stepped.sweep()
    stepped.heartbeat(1)
    assert stepped.image.brokers[1].logs_lost == LogsLost.NOTHING


def test_successor_completes_what_its_predecessor_began(stepped: ControllerHarness) -> None:
    stepped.stop_heartbeats(1)
    stepped.sweep(4)
    stepped.commit()
    stepped.sweep(2)  # never committed
    assert 0 < led_by(stepped, 1) < 12
    stepped.lose_leadership()
    assert stepped.core.is_sweeping
    assert stepped.heartbeat(1).is_fenced, "it does not know yet which partitions remain"
    stepped.sweep()
    assert led_by(stepped, 1) == 0
    assert not stepped.heartbeat(1).is_fenced


def test_broker_that_fails_in_the_middle_of_a_sweep_gets_its_own_pass(stepped: ControllerHarness) -> None:
    stepped.stop_heartbeats(1)
    stepped.sweep(6)
    stepped.stop_heartbeats(2)
    stepped.sweep()  # checks that the image is settled
    assert led_by(stepped, 3) == 36
    assert not stepped.heartbeat(2).is_fenced
    stepped.sweep(1)
    stepped.stop_heartbeats(2)  # fenced again during the sweep that follows its return
    assert stepped.heartbeat(2).is_fenced
    stepped.sweep()
    assert not stepped.heartbeat(2).is_fenced


def test_deposed_controller_stops_sweeping(stepped: ControllerHarness) -> None:
    stepped.stop_heartbeats(1)
    stepped.sweep(1)
    stepped.core.resign()
    assert not stepped.core.is_sweeping


def test_topics_may_be_created_and_deleted_during_a_sweep(stepped: ControllerHarness) -> None:
    stepped.stop_heartbeats(1)
    stepped.sweep(3)
    for name in ("t0", "t5"):
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        stepped.run(stepped.core.handle_forwarded(stepped.context, request))
    stepped.create_assigned("late", [1, 2, 3])
    assert stepped.partition("late").isr == (2, 3)
    stepped.sweep()
    assert led_by(stepped, 1) == 0


def test_changed_rules_are_followed_by_a_sweep(stepped: ControllerHarness) -> None:
    stepped.sweeps_at_once = True
    stepped.create_assigned("lonely", [1, 2])
    stepped.stop_heartbeats(2)
    stepped.stop_heartbeats(1)
    stepped.heartbeat(2)
    assert stepped.partition("lonely").leader == -1

    def set_unclean(value: str) -> None:
        entry = AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name="lonely", configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        stepped.run(stepped.core.handle_forwarded(stepped.context, request))

    set_unclean("false")
    assert stepped.partition("lonely").leader == -1
    set_unclean("true")
    assert stepped.partition("lonely").leader == 2


@pytest.mark.parametrize(("resource_type", "name"), [(2, "t"), (4, "")], ids=["topic", "cluster"])
def test_smaller_minimum_frees_partitions_from_replicas_they_wait_for(
    make_controller: Callable[..., ControllerHarness], resource_type: int, name: str
) -> None:
    """While a replica outside the ISR is eligible, nothing is committed. Lowering the minimum ends that."""
    harness = make_controller(features={ELIGIBLE_LEADER_REPLICAS_VERSION: 1})
    harness.start_brokers(1, 2)

    def set_minimum(value: str) -> None:
        entry = AlterableConfig(name="min.insync.replicas", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        harness.run(harness.core.handle_forwarded(harness.context, request))

    harness.create_assigned("t", [1, 2])
    set_minimum("2")
    harness.stop_heartbeats(2)
    assert (harness.partition("t").isr, harness.partition("t").elr) == ((1,), (2,))
    set_minimum("1")
    assert (harness.partition("t").isr, harness.partition("t").elr) == ((1,), ())


def test_long_topic_is_split_into_slices(cluster: ControllerHarness, small_slices: None) -> None:
    cluster.create_assigned("long", *[[1, 2]] * 30)
    before = len(cluster.log)
    cluster.stop_heartbeats(1)
    assert max(len(batch.values) for batch in cluster.log[before:]) <= SMALL
    assert {partition.leader for partition in cluster.topic("long").partitions} == {2}


def test_slices_are_bounded_at_their_real_size() -> None:
    image, offset = EMPTY_IMAGE, 0
    for broker_id in (1, 2):
        incarnation = Uuid(bytes([broker_id]) * 16)
        record = RegisterBrokerRecord(broker_id, incarnation, broker_id, (), fenced=broker_id == 1)
        image, _ = replay(image, [record], offset, 1)
        offset += 1
    for number in range(200):
        topic_id = Uuid(Random(number).randbytes(16))
        records: list[Record] = [TopicRecord(f"t{number}", topic_id)]
        records += [PartitionRecord(index, topic_id, (1, 2), (1, 2), leader=1) for index in range(100)]
        image, _ = replay(image, records, offset, 1)
        offset += len(records)
    swept = Sweeps(ControllerConfig())
    swept.begin()
    sizes, order = [], []
    while swept.is_pending:
        changes = swept.next_slice(image)
        sizes.append(len(changes))
        order += [(change.topic_id, change.partition_id) for change in changes]
    assert max(sizes) == sweeps.SLICE_CHANGES
    assert order == sorted(order) and len(order) == 20_000


def test_order_of_a_pass_is_the_same_in_every_process() -> None:
    script = """
from random import Random
from pykraft.metadata_log.controller.topics.topic_walk import TopicWalk
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.metadata_log.records import TopicRecord
from pykraft.metadata_log.replay import replay
rng = Random(1)
image, _ = replay(EMPTY_IMAGE, [TopicRecord(f"t{n}", rng.randbytes(16)) for n in range(300)], 0, 1)
order = TopicWalk(image)
while order._unread is not None:
    order._read_ids()
print([id.hex() for id in order._ids])
"""
    outputs = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        outputs.add(done.stdout)
    assert len(outputs) == 1


@pytest.mark.parametrize("seed", range(25))
def test_changes_between_slices_leave_the_cluster_repaired(
    make_controller: Callable[..., ControllerHarness], small_slices: None, seed: int
) -> None:
    """Random commands with slices, commits and lost leaderships in between, each checked as it is applied."""
    harness = make_controller(seed)
    commands, rng = Commands(harness, seed), Random(-seed - 1)
    harness.sweeps_at_once = False
    for _ in range(200):
        commands.one()
        harness.sweep(rng.choice((0, 0, 1, 1, 3)))
        if rng.random() < 0.2:
            harness.commit()
        if rng.random() < 0.05 and harness.committed:
            harness.lose_leadership()
    harness.sweep()
    harness.commit()
    assert harness.standby.image == harness.image


def test_a_broker_returns_only_after_it_has_applied_the_sweep_of_its_absence(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.stop_heartbeats(1)
    fenced_at = cluster.image.brokers[1].last_change_offset
    assert cluster.image.offset > fenced_at, "the sweep moved its leadership"
    assert cluster.heartbeat(1, offset=fenced_at).is_fenced, "it still believes that it leads"
    assert not cluster.heartbeat(1, offset=cluster.image.offset).is_fenced


def test_broker_returns_although_the_rules_change_all_the_time(cluster: ControllerHarness) -> None:
    """A client that changes the rules waits only for the commit, so that the next pass ends before the broker
    has applied the last one. The broker only needs to know the consequences of its own absence.
    """
    cluster.create_assigned("t", [1, 2])
    cluster.stop_heartbeats(1)
    cluster.commit()
    for number in range(20):
        applied = cluster.image.offset
        entry = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(1 + number % 2))
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        cluster.run(cluster.core.handle_forwarded(cluster.context, request))
        cluster.heartbeat(1, offset=applied)
        cluster.commit()
        cluster.now_ms += 20
    assert not cluster.image.brokers[1].fenced
