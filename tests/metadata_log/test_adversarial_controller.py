"""Attempts to make the controller forget, repeat or believe what it must not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from pykraft.kafka_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykraft.metadata_log.controller.elections import iter_partitions
from pykraft.metadata_log.controller.requests import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    IsrMember,
    PartitionIsrChange,
    PartitionIsrResult,
)
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.records import NO_LEADER


def propose(
    cluster: Any, name: str, members: list[tuple[int, int]], *, sender: int | None = None
) -> PartitionIsrResult:
    """An ISR proposal of the leader about the present state of partition 0."""
    partition = cluster.partition(name)
    leader = partition.leader if sender is None else sender
    change = PartitionIsrChange(
        cluster.topic(name).id,
        0,
        partition.leader_epoch,
        partition.partition_epoch,
        tuple(IsrMember(broker_id, epoch) for broker_id, epoch in members),
    )
    request = AlterPartitionRequest(leader, cluster.image.brokers[leader].epoch, (change,))
    (result,) = cluster.run(cluster.core.handle_alter_partition(request)).partitions
    return result  # type: ignore[no-any-return]


def epoch_of(cluster: Any, broker_id: int) -> int:
    return int(cluster.image.brokers[broker_id].epoch)


# --- incarnations ------------------------------------------------------------------------------------------


def test_new_process_leaves_every_isr_that_its_predecessor_stood_in(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.silence(2)
    cluster.heartbeat(2)
    assert propose(cluster, "t", [(id, epoch_of(cluster, id)) for id in (1, 2, 3)]).error is ErrorCode.NONE
    cluster.silence(2)
    cluster.register(2, incarnation=2)
    assert cluster.partition("t").isr == (1, 3)


def test_process_that_died_before_it_was_fenced_leaves_the_isr_when_its_successor_registers(
    cluster: Any,
) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.now_ms += cluster.config.session_timeout_ms  # lapsed, but not looked at yet
    before = cluster.partition("t")
    cluster.register(1, incarnation=2)
    after = cluster.partition("t")
    assert after.isr == (2, 3) and after.leader == 2 and after.leader_epoch > before.leader_epoch
    assert cluster.image.brokers[1].fenced


def test_leader_cannot_bring_back_an_incarnation_that_is_gone(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2])
    old_epoch = epoch_of(cluster, 2)
    cluster.silence(2)
    cluster.register(2, incarnation=2)
    cluster.heartbeat(2)
    members = [(1, epoch_of(cluster, 1)), (2, old_epoch)]
    assert propose(cluster, "t", members).error is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.partition("t").isr == (1,)


def test_nobody_joins_an_isr_without_saying_which_process_it_is(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.silence(2)
    cluster.heartbeat(2)
    members = [(1, epoch_of(cluster, 1)), (2, -1), (3, -1)]
    assert propose(cluster, "t", members).error is ErrorCode.INELIGIBLE_REPLICA
    assert propose(cluster, "t", [(1, -1), (3, -1)]).error is ErrorCode.NONE


def test_predecessor_that_still_runs_is_told_so_by_its_next_heartbeat(cluster: Any) -> None:
    old_epoch = epoch_of(cluster, 2)
    cluster.silence(2)
    cluster.register(2, incarnation=2)
    with pytest.raises(KafkaError) as refusal:
        cluster.heartbeat(2, epoch=old_epoch)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_ghost_of_a_fenced_incarnation_cannot_take_the_id_back_from_a_live_one(cluster: Any) -> None:
    cluster.silence(2)
    cluster.register(2, incarnation=2)
    with pytest.raises(KafkaError) as refusal:
        cluster.register(2, incarnation=1)
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_isr_that_was_fenced_as_a_whole_is_kept_whole_and_led_by_the_first_to_return(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.silence(1, 2, 3)
    assert cluster.partition("t").isr == (1, 2, 3) and cluster.partition("t").leader == NO_LEADER
    cluster.heartbeat(3)
    assert cluster.partition("t").isr == (3,) and cluster.partition("t").leader == 3


def test_restarted_member_of_a_leaderless_isr_does_not_lead_while_another_may_return(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.silence(1, 2)
    cluster.register(1, incarnation=2)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == NO_LEADER and cluster.partition("t").isr == (2,)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == 2


def test_last_member_of_an_isr_leads_again_after_a_restart(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.silence(2)
    cluster.silence(1)
    cluster.register(1, incarnation=2)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == 1 and cluster.partition("t").isr == (1,)


@pytest.mark.parametrize("seed", range(12))
def test_no_isr_holds_a_process_that_did_not_join_it(make_controller: Callable[..., Any], seed: int) -> None:
    """Whoever stands in an ISR of two or more is the very process that was created or added there."""
    harness, rng = make_controller(seed), Random(seed)
    brokers = (1, 2, 3, 4)
    incarnations = dict.fromkeys(brokers, 1)
    harness.start_brokers(*brokers)
    for number in range(6):
        harness.create_topic(f"t{number}", 2, 3)
    joined = {
        (topic.id, index, id): epoch_of(harness, id)
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
                        propose(harness, name, [(id, epoch_of(harness, id)) for id in sorted(ids)])
        now = {}
        for topic, index, partition in iter_partitions(harness.image):
            for id in partition.isr:
                key = (topic.id, index, id)
                now[key] = joined.get(key, epoch_of(harness, id))
                if len(partition.isr) > 1:
                    assert now[key] == epoch_of(harness, id), f"{topic.name}-{index}: {partition}"
                else:
                    now[key] = epoch_of(harness, id)  # all there is: whatever it has is the partition
        joined = now


# --- failover ----------------------------------------------------------------------------------------------


def test_producer_ids_taken_back_with_a_lost_leadership_were_never_told_to_anybody(cluster: Any) -> None:
    def allocate() -> int:
        request = AllocateProducerIdsRequest(1, epoch_of(cluster, 1))
        return int(cluster.run(cluster.core.handle_allocate_producer_ids(request)).start)

    committed = allocate()
    cluster.commit()
    lost = allocate()
    cluster.lose_leadership()
    again = allocate()
    cluster.commit()
    assert committed < lost == again
    assert allocate() > again
    assert cluster.standby.image.next_producer_id == again + 1000


def test_good_bye_that_was_not_committed_is_forgotten_with_the_leadership(cluster: Any) -> None:
    assert not cluster.heartbeat(3, want_shut_down=True).should_shut_down
    cluster.commit()
    assert not cluster.heartbeat(3, want_shut_down=True).should_shut_down
    cluster.hear_active()
    assert cluster.heartbeat(3, want_shut_down=True).should_shut_down
    cluster.lose_leadership()
    assert not cluster.image.brokers[3].fenced
    with pytest.raises(KafkaError) as refusal:
        cluster.register(3, incarnation=2)
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_new_controller_gives_a_full_session_from_its_claim(cluster: Any) -> None:
    cluster.now_ms += cluster.config.session_timeout_ms - 1
    cluster.lose_leadership()
    cluster.now_ms += cluster.config.session_timeout_ms - 1
    cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
    assert not any(broker.fenced for broker in cluster.image.brokers.values())
    cluster.now_ms += 1
    cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
    assert all(broker.fenced for broker in cluster.image.brokers.values())


def test_fenced_broker_is_not_unfenced_before_it_knows_that_it_was_fenced(cluster: Any) -> None:
    known = cluster.image.offset
    cluster.silence(2)
    answer = cluster.heartbeat(2, offset=known)
    assert answer.is_fenced and not answer.is_caught_up
    assert not cluster.heartbeat(2).is_fenced


def test_proposal_of_a_former_leader_is_refused_by_its_epoch(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    topic, old = cluster.topic("t"), cluster.partition("t")
    epoch = epoch_of(cluster, 1)
    cluster.silence(1)
    change = PartitionIsrChange(topic.id, 0, old.leader_epoch, old.partition_epoch, (IsrMember(1, epoch),))
    (result,) = cluster.run(
        cluster.core.handle_alter_partition(AlterPartitionRequest(1, epoch, (change,)))
    ).partitions
    assert result.error is ErrorCode.FENCED_LEADER_EPOCH


# --- names that come back --------------------------------------------------------------------------------


class Recorder:
    def __init__(self) -> None:
        self.deltas: list[MetadataDelta] = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.deltas.append(delta)


@pytest.mark.parametrize("same_config", [True, False])
def test_topic_recreated_within_one_slice_is_one_deleted_and_one_created(
    cluster: Any, same_config: bool
) -> None:
    def create(retention_ms: str) -> Uuid:
        config = CreatableTopicConfig(name="retention.ms", value=retention_ms)
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=2, configs=[config])
        (result,) = cluster.create_topics(topic)
        assert result.error_code == 0
        return Uuid(result.topic_id)

    recorder = Recorder()
    loader = MetadataLoader([recorder])
    first = create("5")
    loader.handle_commit(cluster.log)
    position = len(cluster.log)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    cluster.run(cluster.core.handle_delete_topics(cluster.context, request))
    second = create("5" if same_config else "6")
    loader.handle_commit(cluster.log[position:])
    delta = recorder.deltas[-1]
    assert set(delta.deleted_topics) == {first} and delta.created_topics == {second}
    assert delta.changed_partitions == {second: frozenset((0, 1))}
    assert bool(delta.changed_configs) is not same_config
    assert loader.image.topic_config("t")["retention.ms"] == ("5" if same_config else "6")


def test_topic_that_came_and_went_within_one_slice_is_nobodys_news(cluster: Any) -> None:
    recorder = Recorder()
    loader = MetadataLoader([recorder])
    loader.handle_commit(cluster.log)
    position, told = len(cluster.log), len(recorder.deltas)
    cluster.create_topic("t", 3, 2)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    cluster.run(cluster.core.handle_delete_topics(cluster.context, request))
    loader.handle_commit(cluster.log[position:])
    assert len(recorder.deltas) == told


# --- shutting down -----------------------------------------------------------------------------------------


def test_broker_that_shuts_down_hands_over_and_may_then_go(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2])
    first = cluster.heartbeat(1, want_shut_down=True)
    assert not first.should_shut_down and cluster.partition("t").leader == 2
    last = cluster.shut_down(1)
    assert last.should_shut_down and last.is_fenced
    cluster.register(1, incarnation=2)


def test_broker_that_shuts_down_with_the_only_copy_goes_all_the_same(cluster: Any) -> None:
    cluster.create_assigned("t", [1])
    assert cluster.shut_down(1).should_shut_down
    assert cluster.partition("t").isr == (1,) and cluster.partition("t").leader == NO_LEADER


def test_broker_that_shuts_down_is_not_taken_into_an_isr_again(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.create_assigned("only", [2])
    cluster.heartbeat(2, want_shut_down=True)
    members = [(1, epoch_of(cluster, 1)), (2, epoch_of(cluster, 2))]
    assert propose(cluster, "t", members).error is ErrorCode.INELIGIBLE_REPLICA


def test_heartbeat_of_a_broker_nobody_knows_is_stale(cluster: Any) -> None:
    request = BrokerHeartbeatRequest(99, 1, 1)
    with pytest.raises(KafkaError) as refusal:
        cluster.core.handle_broker_heartbeat(request, cluster.now_ms)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH
