"""A new process of a broker, and what remains of the previous one."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.elections import iter_partitions
from pykraft.metadata_log.records import NO_LEADER
from tests.metadata_log.harness import ControllerHarness


def test_new_process_leaves_every_isr_that_its_predecessor_was_in(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.stop_heartbeats(2)
    cluster.heartbeat(2)
    assert cluster.propose_isr("t", [(id, cluster.epoch_of(id)) for id in (1, 2, 3)]).error is ErrorCode.NONE
    cluster.stop_heartbeats(2)
    cluster.register(2, incarnation=2)
    assert cluster.partition("t").isr == (1, 3)


def test_process_killed_before_it_was_fenced_leaves_the_isr_when_its_successor_registers(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.now_ms += cluster.config.session_timeout_ms  # its session has ended, but was not checked yet
    before = cluster.partition("t")
    cluster.register(1, incarnation=2)
    after = cluster.partition("t")
    assert after.isr == (2, 3) and after.leader == 2 and after.leader_epoch > before.leader_epoch
    assert cluster.image.brokers[1].fenced


def test_leader_cannot_add_an_incarnation_that_is_gone(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    old_epoch = cluster.epoch_of(2)
    cluster.stop_heartbeats(2)
    cluster.register(2, incarnation=2)
    cluster.heartbeat(2)
    members = [(1, cluster.epoch_of(1)), (2, old_epoch)]
    assert cluster.propose_isr("t", members).error is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.partition("t").isr == (1,)


def test_no_replica_joins_an_isr_without_its_incarnation(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.stop_heartbeats(2)
    cluster.heartbeat(2)
    members = [(1, cluster.epoch_of(1)), (2, -1), (3, -1)]
    assert cluster.propose_isr("t", members).error is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.propose_isr("t", [(1, -1), (3, -1)]).error is ErrorCode.NONE


def test_running_predecessor_learns_of_its_successor_at_its_next_heartbeat(
    cluster: ControllerHarness,
) -> None:
    old_epoch = cluster.epoch_of(2)
    cluster.stop_heartbeats(2)
    cluster.register(2, incarnation=2)
    with pytest.raises(KafkaError) as refusal:
        cluster.heartbeat(2, epoch=old_epoch)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_fenced_incarnation_cannot_take_the_id_back_from_a_live_one(cluster: ControllerHarness) -> None:
    cluster.stop_heartbeats(2)
    cluster.register(2, incarnation=2)
    with pytest.raises(KafkaError) as refusal:
        cluster.register(2, incarnation=1)
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_isr_that_was_fenced_as_a_whole_is_kept_and_led_by_the_first_to_return(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.stop_heartbeats(1, 2, 3)
    assert cluster.partition("t").isr == (1, 2, 3) and cluster.partition("t").leader == NO_LEADER
    cluster.heartbeat(3)
    assert cluster.partition("t").isr == (3,) and cluster.partition("t").leader == 3


def test_restarted_member_of_a_leaderless_isr_does_not_lead_while_another_may_return(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.stop_heartbeats(1, 2)
    cluster.register(1, incarnation=2)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == NO_LEADER and cluster.partition("t").isr == (2,)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == 2


def test_last_member_of_an_isr_leads_again_after_a_restart(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.stop_heartbeats(2)
    cluster.stop_heartbeats(1)
    cluster.register(1, incarnation=2)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == 1 and cluster.partition("t").isr == (1,)


@pytest.mark.parametrize("seed", range(12))
def test_no_isr_holds_a_process_that_did_not_join_it(
    make_controller: Callable[..., ControllerHarness], seed: int
) -> None:
    """Every member of an ISR of two or more is the process that was created or added there."""
    harness, rng = make_controller(seed), Random(seed)
    brokers = (1, 2, 3, 4)
    incarnations = dict.fromkeys(brokers, 1)
    harness.start_brokers(*brokers)
    for number in range(6):
        harness.create_topic(f"t{number}", 2, 3)
    joined = {
        (topic.id, index, id): harness.epoch_of(id)
        for topic, index, partition in iter_partitions(harness.image)
        for id in partition.isr
    }
    for _ in range(400):
        harness.now_ms += rng.choice((0, 500, 3000, 9000))
        broker_id = rng.choice(brokers)
        with suppress(KafkaError):
            match rng.randrange(5):
                case 0:
                    incarnations[broker_id] += 1
                    harness.register(broker_id, incarnation=incarnations[broker_id])
                case 1:
                    harness.run(harness.core.handle_fence_check(harness.now_ms))
                case 2:
                    harness.heartbeat(broker_id, want_shut_down=rng.random() < 0.2)
                case 3:
                    harness.heartbeat(broker_id)
                case _:
                    name = f"t{rng.randrange(6)}"
                    partition = harness.partition(name)
                    if partition.leader != NO_LEADER:
                        ids = {partition.leader, *rng.sample(partition.replicas, 2)}
                        harness.propose_isr(name, [(id, harness.epoch_of(id)) for id in sorted(ids)])
        now = {}
        for topic, index, partition in iter_partitions(harness.image):
            for id in partition.isr:
                key = (topic.id, index, id)
                now[key] = joined.get(key, harness.epoch_of(id))
                if len(partition.isr) > 1:
                    assert now[key] == harness.epoch_of(id), f"{topic.name}-{index}: {partition}"
                else:
                    now[key] = harness.epoch_of(id)  # the only member: its log is the partition
        joined = now
