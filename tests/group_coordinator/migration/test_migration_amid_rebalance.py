"""A group that changes its protocol while members have yet to stop or to start reading; failovers."""

from typing import Any

import pytest

from pykraft.group_coordinator.classic.join import handle_join_group
from pykraft.group_coordinator.classic.sync import handle_heartbeat, handle_leave_group, handle_sync_group
from pykraft.group_coordinator.shard import GroupOutcome
from pykraft.group_coordinator.state.classic_group import ClassicGroup
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.result import AnyResult, CoordinatorResult, Parked
from pykraft.kafka_protocol.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from tests.group_coordinator import tools
from tests.group_coordinator.requests import heartbeat, join_group, leave_group, sync_group

REBALANCE_MS = 20_000


class Lab(tools.ShardLab):
    """Group ``g`` of topic ``t`` with four partitions; members choose their ids (version 3)."""

    def __init__(self) -> None:
        config = GroupConfig(consumer_assignment_interval_ms=0, initial_rebalance_delay_ms=0)
        super().__init__({"t": 4}, config)

    def ask(self, handle: Any, request: Any, version: int = 3, **more: str) -> GroupOutcome:
        call = self.call(version, **more)

        def decide(state: Any) -> AnyResult:
            result = handle(state, request, call)
            assert isinstance(result, CoordinatorResult)
            return result

        return self.apply(decide)

    def join(
        self,
        member_id: str = "",
        owned: tuple[int, ...] = (),
        *,
        generation: int = -1,
        instance_id: str | None = None,
        version: int = 3,
        new_id: str = "",
    ) -> Any:
        named = [SubscriptionTopicPartition(topic="t", partitions=list(owned))] if owned else []
        subscription = ConsumerProtocolSubscription(
            topics=["t"], owned_partitions=named, generation_id=generation
        )
        request = join_group(
            member_id,
            {"sticky": encode_subscription(subscription, 2)},
            group_instance_id=instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        outcome = self.ask(handle_join_group, request, version, new_member_id=new_id)
        return self.own_answer(outcome, member_id)

    def sync(self, member_id: str, generation: int, **shares: tuple[int, ...]) -> Any:
        given = {name.replace("_", "-"): assignment(share) for name, share in shares.items()}
        return self.own_answer(
            self.ask(handle_sync_group, sync_group(member_id, generation, given)), member_id
        )

    def beat(self, member_id: str, generation: int) -> int:
        response: Any = self.ask(handle_heartbeat, heartbeat(member_id, generation)).result.response
        return int(response.error_code)

    def leave(self, *member_ids: str) -> None:
        self.ask(handle_leave_group, leave_group(*member_ids), 5)

    def own_answer(self, outcome: GroupOutcome, member_id: str) -> Any:
        """The answer for the member that asked, None if it waits."""
        if not isinstance(outcome.result.response, Parked):
            return outcome.result.response
        parked = outcome.result.response
        return next((one.response for one in outcome.result.completions if one.parked == parked), None)

    def classic_pair(self, **shares: tuple[int, ...]) -> tuple[str, str]:
        """Two members of a stable classic group, in generation 2: the leader and the other."""
        self.join(new_id="a")
        self.pass_time(1)
        self.sync("client-a", 1, client_a=(0, 1, 2, 3))
        self.join(new_id="b")
        self.join("client-a", (0, 1, 2, 3), generation=1)
        self.sync("client-a", 2, **shares)
        assert self.phase == "Stable" and self.classic.generation == 2
        return "client-a", "client-b"

    @property
    def phase(self) -> str:
        return self.classic.state.value

    @property
    def classic(self) -> ClassicGroup:
        group = self.shard.state.classic_group("g")
        assert group is not None
        return group

    def held(self, member_id: str) -> list[int]:
        return sorted(index for _, index in self.group.members[member_id].held)

    def got(self, response: Any) -> list[int]:
        return sorted(index for _, index in tools.assigned(response))


def assignment(partitions: tuple[int, ...]) -> bytes:
    named = [AssignmentTopicPartition(topic="t", partitions=list(partitions))] if partitions else []
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=named), 2)


def read(response: Any) -> list[int]:
    assert not response.error_code
    decoded, _ = decode_assignment(response.assignment)
    return [index for one in decoded.assigned_partitions for index in one.partitions]


def test_member_that_has_not_fetched_its_assignment_may_read_what_it_owned() -> None:
    """The leader is to give up two partitions, and its SyncGroup is not answered yet."""
    lab = Lab()
    a, b = lab.classic_pair(client_a=(0, 1), client_b=())
    joined = lab.heartbeat("c", 0)
    assert lab.got(joined) == []
    assert lab.held(a) == [0, 1, 2, 3]
    assert lab.held(b) == []


def test_partition_that_two_claim_is_held_by_the_later_generation() -> None:
    lab = Lab()
    a, b = lab.classic_pair(client_a=(0, 1), client_b=(2, 3))
    lab.sync(b, 2)
    lab.join(b, (2, 3), generation=2)
    lab.pass_time(1)
    assert lab.phase == "PreparingRebalance"
    lab.join(a, (0, 1, 2), generation=1)  # what it owned before it was silent for some time
    assert lab.phase == "CompletingRebalance"
    lab.join(b, (2, 3, 3), generation=2)  # the rebalance is broken off: nobody has an assignment
    assert lab.phase == "PreparingRebalance"
    lab.heartbeat("c", 0)
    assert (lab.held(a), lab.held(b), lab.held("c")) == ([0, 1], [2, 3], [])


def test_partition_that_the_leader_left_out_is_assigned_by_an_upgrade() -> None:
    """A topic has grown, and the leader did not notice; the new member does not subscribe to it."""
    lab = Lab()
    a, _ = lab.classic_pair(client_a=(0, 1), client_b=(2, 3))
    lab.set_topics({"t": 5})
    lab.heartbeat("c", 0, subscribed_topic_names=[])
    assert sorted(index for target in lab.group.targets.values() for _, index in target) == [0, 1, 2, 3, 4]
    assert lab.beat(a, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_upgrade_without_a_reason_moves_no_epoch() -> None:
    lab = Lab()
    a, _ = lab.classic_pair(client_a=(0, 1), client_b=(2, 3))
    assert lab.heartbeat("c", 0, subscribed_topic_names=[]).member_epoch == 2
    assert lab.beat(a, 2) == ErrorCode.NONE


def mixed_group(lab: Lab) -> tuple[str, str]:
    """Two classic members and one of the consumer protocol: the second waits for what the first reads."""
    lab.join(new_id="a")
    lab.pass_time(1)
    lab.sync("client-a", 1, client_a=(0, 1, 2, 3))
    lab.heartbeat("c", 0, subscribed_topic_names=[])
    lab.join("b", (), version=5)
    assert (lab.held("client-a"), lab.held("b")) == ([0, 1, 2, 3], [])
    assert len(lab.group.target_of("b")) == 2
    return "client-a", "b"


def test_group_that_changes_twice_keeps_what_its_members_read() -> None:
    lab = Lab()
    a, b = mixed_group(lab)
    lab.heartbeat("c", -1)
    assert lab.phase == "PreparingRebalance"
    lab.heartbeat("d", 0)
    assert (lab.held(a), lab.held(b), lab.held("d")) == ([0, 1, 2, 3], [], [])


@pytest.mark.parametrize("fails_over", [False, True])
def test_downgrade_ends_with_every_partition_read_even_after_a_failover(fails_over: bool) -> None:
    """Those of the member that left would be nobody's if the next coordinator took the group for stable."""
    lab = Lab()
    lab.join(new_id="a")
    lab.pass_time(1)
    lab.sync("client-a", 1, client_a=(0, 1, 2, 3))
    lab.heartbeat("c", 0)
    lab.join("client-a", (0, 1, 2, 3), generation=1)
    kept = read(lab.sync("client-a", 1))
    epoch = lab.join("client-a", tuple(kept), generation=1).generation_id
    assert read(lab.sync("client-a", epoch)) == kept and len(kept) == 2
    lab.heartbeat("c", epoch, set())
    lab.heartbeat("c", -1)
    if fails_over:
        lab.fail_over()
    assert lab.phase == "PreparingRebalance"
    assert lab.beat("client-a", epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    with pytest.raises(KafkaError) as refused:
        lab.sync("client-a", epoch)
    assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    joined = lab.join("client-a", tuple(kept), generation=epoch)
    assert joined.leader == "client-a" and joined.generation_id == epoch + 1
    assert read(lab.sync("client-a", epoch + 1, client_a=(0, 1, 2, 3))) == [0, 1, 2, 3]
    lab.fail_over()
    assert lab.phase == "Stable"


def test_rebalance_of_a_downgrade_ends_without_those_who_are_silent_after_a_failover() -> None:
    lab = Lab()
    a, b = mixed_group(lab)
    lab.heartbeat("c", -1)
    lab.fail_over()
    generation = lab.classic.generation
    assert lab.join(a, (0, 1, 2, 3), generation=1) is None
    for _ in range(REBALANCE_MS // 5_000):
        assert lab.beat(b, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        lab.pass_time(5_000)
    assert set(lab.classic.members) == {a}
    assert lab.classic.generation == generation + 1


@pytest.mark.parametrize(("version", "leads"), [(9, True), (8, False)])
def test_last_static_member_that_goes_back_leads_the_group_or_it_rebalances(
    version: int, leads: bool
) -> None:
    """Somebody must notice new partitions. From version 9 on, it can lead without assigning anything."""
    lab = Lab()
    lab.heartbeat("c", 0, instance_id="i")
    returns = lab.join(instance_id="i", version=version, new_id="a")
    assert (lab.phase == "Stable") is leads
    assert (returns.leader == returns.member_id) is leads
    assert returns.skip_assignment is leads
    assert len(returns.members) == leads
    if leads:
        assert read(lab.sync(returns.member_id, returns.generation_id)) == [0, 1, 2, 3]
    lab.fail_over()
    assert (lab.phase == "Stable") is leads


def test_member_that_was_removed_while_it_reads_is_told_so() -> None:
    """As in a classic group. If it could join again, it would go on reading until it has its assignment."""
    lab = Lab()
    a, b = mixed_group(lab)
    lab.leave(a)
    with pytest.raises(KafkaError) as refused:
        lab.join(a, (0, 1, 2, 3), generation=1)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert not lab.join(a).error_code  # whoever reads nothing may bring an id
    assert b in lab.group.members


def test_member_that_is_told_to_join_and_only_heartbeats_is_removed() -> None:
    """Its time to join starts when it is first told."""
    lab = Lab()
    a, b = mixed_group(lab)
    for _ in range(REBALANCE_MS // 5_000):
        assert lab.beat(a, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        lab.heartbeat("c", lab.group.members["c"].epoch, set())
        lab.join(b)
        lab.pass_time(5_000)
    assert set(lab.group.members) == {b, "c"}


@pytest.mark.parametrize("holds", [True, False])
def test_member_is_told_to_join_again_when_the_partitions_it_waits_for_are_free(holds: bool) -> None:
    lab = Lab()
    a, b = mixed_group(lab)
    epoch = lab.group.members[b].epoch
    assert lab.beat(b, epoch) == ErrorCode.NONE
    if not holds:
        lab.join(a, (0, 1, 2, 3), generation=1)
        kept = read(lab.sync(a, 1))
        lab.join(a, tuple(kept), generation=1)
    assert (lab.beat(b, epoch) == ErrorCode.NONE) is holds


def test_last_static_member_that_goes_back_does_not_lead_while_somebody_waits_for_partitions() -> None:
    """A classic group would never tell that member that they are free."""
    lab = Lab()
    lab.join(new_id="a")
    lab.pass_time(1)
    lab.sync("client-a", 1, client_a=(0, 1, 2, 3))
    lab.heartbeat("c", 0, instance_id="i", subscribed_topic_names=[])
    lab.join("b", (), version=5)
    lab.heartbeat("c", lab.group.members["c"].epoch)
    assert lab.group.members["c"].is_reconciled_to(lab.group.epoch)
    returns = lab.join(instance_id="i", version=9, new_id="e")
    assert lab.phase == "PreparingRebalance"
    assert returns is None or not returns.skip_assignment


def test_join_is_answered_with_the_type_of_the_protocol() -> None:
    lab = Lab()
    lab.join(new_id="a")
    lab.pass_time(1)
    lab.sync("client-a", 1, client_a=(0, 1, 2, 3))
    assert lab.join("client-a", (0, 1, 2, 3), generation=1, version=9).protocol_type == "consumer"
