"""When offsets expire: of topics that a live group has given up, and of classic groups that are empty."""

from dataclasses import replace

import pytest

from pykraft.group_coordinator.housekeeping import sweep_expired_offsets
from pykraft.group_coordinator.state.classic_group import ClassicState
from pykraft.group_coordinator.state.records import (
    ClassicMemberValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pykraft.group_coordinator.state.result import CoordinatorResult
from pykraft.kafka_protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from tests.group_coordinator import tools
from tests.narrowing import present

SIZES = {"t": 2, "u": 2, "v": 1}


def subscription(*topics: str, version: int = 3) -> bytes:
    return encode_subscription(ConsumerProtocolSubscription(topics=list(topics)), version)


class Lab(tools.ShardLab):
    """Group ``g`` has committed for ``t`` and ``u``."""

    def __init__(self) -> None:
        super().__init__(SIZES)
        self.commit("t", "u")

    @property
    def retention_ms(self) -> int:
        return self.config.offsets_retention_ms

    def write(self, *records: GroupRecord) -> None:
        self.apply(lambda _: CoordinatorResult(None, records))

    def commit(self, *topics: str) -> None:
        ids = self.topics.image.topic_ids
        value = OffsetCommitValue(7, -1, "", self.clock.now_ms)
        self.write(
            *(
                GroupRecord(
                    OffsetCommitKey("g", topic, 0),
                    OffsetCommitValue(value.offset, -1, "", value.commit_timestamp_ms, None, ids[topic]),
                )
                for topic in topics
            )
        )

    def write_classic(self, *subscriptions: bytes, protocol_type: str = "consumer") -> None:
        members = tuple(
            ClassicMemberValue(f"m{n}", None, "c", "/h", 60_000, 10_000, one, b"")
            for n, one in enumerate(subscriptions)
        )
        now_ms = self.clock.now_ms
        value = GroupMetadataValue(protocol_type, 3, "range", "m0" if members else None, now_ms, members)
        self.write(GroupRecord(GroupMetadataKey("g"), value))

    def wait(self, delay_ms: int) -> None:
        """Without the end of any session."""
        self.clock.now_ms += delay_ms

    def left(self) -> set[str]:
        """The topics whose offsets remain after a clean-up now."""
        sweep = sweep_expired_offsets(self.shard.state)
        while not sweep.is_finished:
            self.apply(lambda state: sweep.build_slice(state, self.call()))
            sweep.slice_is_written()
        return set(self.shard.state.group_offsets("g"))


def test_consumer_group_keeps_what_it_subscribes_to() -> None:
    lab = Lab()
    lab.wait(5)
    lab.heartbeat("m", 0)
    lab.wait(lab.retention_ms - 6)
    assert lab.left() == {"t", "u"}
    lab.wait(1)
    assert lab.left() == {"t"}, "the retention time of the other counts from its commit"
    lab.wait(10 * lab.retention_ms)
    assert lab.left() == {"t"}


def test_consumer_group_keeps_what_a_pattern_of_it_matches() -> None:
    lab = Lab()
    lab.heartbeat("m", 0, subscribed_topic_names=["v"], subscribed_topic_regex="u+")
    lab.wait(lab.retention_ms)
    assert lab.left() == {"t", "u"}, "it is not known yet what the pattern matches"
    assert lab.resolve()
    assert lab.left() == {"u"}


def test_stable_classic_group_keeps_what_any_of_its_consumers_subscribes_to() -> None:
    lab = Lab()
    lab.commit("v")
    lab.write_classic(subscription("v", version=0), subscription("t"))
    lab.wait(lab.retention_ms - 1)
    assert lab.left() == {"t", "u", "v"}
    lab.wait(1)
    assert lab.left() == {"t", "v"}


def test_topic_that_is_committed_again_is_kept_for_the_retention_time() -> None:
    lab = Lab()
    lab.write_classic(subscription("t"))
    lab.wait(lab.retention_ms - 1)
    lab.commit("u")
    lab.wait(lab.retention_ms - 1)
    assert lab.left() == {"t", "u"}
    lab.wait(1)
    assert lab.left() == {"t"}


@pytest.mark.parametrize(
    ("metadata", "protocol_type"),
    [(b"\x00", "consumer"), (b"", "consumer"), (b"\0\1\0\0\0\5", "consumer"), (subscription("t"), "connect")],
)
def test_classic_group_whose_subscription_cannot_be_read_keeps_all(
    metadata: bytes, protocol_type: str
) -> None:
    lab = Lab()
    lab.write_classic(metadata, protocol_type=protocol_type)
    lab.wait(10 * lab.retention_ms)
    assert lab.left() == {"t", "u"}


@pytest.mark.parametrize("state", [ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE])
def test_classic_group_in_a_rebalance_keeps_all(state: ClassicState) -> None:
    lab = Lab()
    lab.write_classic(subscription("t"))
    group = present(lab.shard.state.classic_group("g"))
    moving = replace(group, state=state)
    lab.apply(lambda _: CoordinatorResult(None, groups=(moving,)))
    lab.wait(10 * lab.retention_ms)
    assert lab.left() == {"t", "u"}


def test_offsets_of_a_classic_group_expire_from_when_it_emptied() -> None:
    lab = Lab()
    lab.write_classic(subscription("t", "u"))
    lab.wait(5 * lab.retention_ms)
    lab.write_classic()
    lab.wait(lab.retention_ms - 1)
    assert lab.left() == {"t", "u"}
    lab.fail_over()
    assert lab.left() == {"t", "u"}, "the time is in the log"
    lab.wait(1)
    assert lab.left() == set()


def test_subscription_that_changes_during_a_sweep_counts() -> None:
    lab = Lab()
    joined = lab.heartbeat("m", 0)
    lab.wait(lab.retention_ms)
    sweep = sweep_expired_offsets(lab.shard.state)
    sweep.build_slice(lab.shard.state, lab.call())
    lab.heartbeat("m", joined.member_epoch, subscribed_topic_names=["u"])
    lab.apply(lambda state: sweep.build_slice(state, lab.call()))
    assert set(lab.shard.state.group_offsets("g")) == {"t", "u"}
