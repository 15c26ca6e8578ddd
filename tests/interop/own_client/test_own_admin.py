"""The own admin client on real brokers: groups of both protocols and transactions, while clients use them."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import GroupDescription, ProducerIdAndEpoch, TransactionDescription
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.narrowing import present

pytestmark = pytest.mark.interop

NewTopic = Callable[..., str]
Fresh = Callable[[str], str]


@pytest.fixture
def admin(trio: Cluster) -> Iterator[AdminClient]:
    with AdminClient(trio.bootstrap_servers) as client:
        yield client


def described(admin: AdminClient, group: str) -> GroupDescription:
    found = admin.describe_groups([group])[group]
    assert isinstance(found, GroupDescription), found
    return found


def test_many_groups_on_all_coordinators_are_set_described_and_deleted(
    admin: AdminClient, new_topic: NewTopic, fresh: Fresh
) -> None:
    topic, name = new_topic(2), fresh("many")
    names = [f"{name}-{n}" for n in range(30)]
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    for n, group in enumerate(names):
        offsets = {it: OffsetAndMetadata(n, None, group) for it in partitions}
        assert admin.alter_group_offsets(group, offsets) == dict.fromkeys(partitions)
    found = admin.describe_groups([*names, f"{name}-nobody"])
    missing = found.pop(f"{name}-nobody")
    assert isinstance(missing, KafkaError) and missing.message == f"Group {name}-nobody not found."
    assert {it.coordinator.id for it in found.values() if isinstance(it, GroupDescription)} == {1, 2, 3}
    assert set(names) <= {it.group_id for it in admin.list_groups(["Empty"], ["Classic"], [""])}
    assert admin.delete_group_offsets(names[0], partitions[:1]) == {partitions[0]: None}
    assert {it: at.offset for it, at in admin.group_offsets(names[0]).items()} == {partitions[1]: 0}
    assert all(outcome.error is None for outcome in admin.delete_groups(names))
    assert not set(names) & {it.group_id for it in admin.list_groups()}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_live_group_keeps_its_offsets_and_loses_the_members_that_are_removed(
    trio: Cluster, admin: AdminClient, new_topic: NewTopic, fresh: Fresh, protocol: str
) -> None:
    topic, other, group = new_topic(1), new_topic(1), fresh("group")
    read, unread = TopicPartition(topic, 0), TopicPartition(other, 0)
    start = {read: OffsetAndMetadata(0), unread: OffsetAndMetadata(0)}
    admin.alter_group_offsets(group, start)
    consumer = Consumer(
        {"bootstrap.servers": trio.bootstrap_servers, "group.id": group, "group.protocol": protocol}
    )
    try:
        consumer.subscribe([topic])
        wait_until(
            "assigned", lambda: consumer.poll(0.05) is None and len(consumer.assignment()) == 1, PATIENCE_S
        )
        outcomes = admin.delete_group_offsets(group, [read, unread])
        assert present(outcomes[read]).code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert outcomes[unread] is None
        refused = admin.alter_group_offsets(group, start)
        assert {present(it).code for it in refused.values()} == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert set(admin.group_offsets(group)) == {read}
        (member,) = described(admin, group).members
        (removed,) = admin.remove_group_members(group, reason="a test")
        assert (removed.name, removed.error) == (member.member_id, None)
        assert admin.remove_group_members(group, []) == []
    finally:
        consumer.close()
    wait_until("empty", lambda: described(admin, group).state == "Empty", PATIENCE_S)
    assert admin.delete_group_offsets(group, [read]) == {read: None}


def test_transactions_on_all_coordinators_are_listed_described_and_taken_from_their_producers(
    trio: Cluster, admin: AdminClient, new_topic: NewTopic, fresh: Fresh
) -> None:
    topic, name = new_topic(3), fresh("ids")
    partitions = [TopicPartition(topic, index) for index in range(3)]
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers, "transactional.id": f"{name}-open"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"v", partition=partition.partition)
    assert producer.flush(PATIENCE_S) == 0
    idle = [f"{name}-{n}" for n in range(20)]
    fenced = admin.fence_producers(idle)
    assert all(isinstance(it, ProducerIdAndEpoch) and it.producer_epoch == 0 for it in fenced.values())

    listed = {it.transactional_id: it for it in admin.list_transactions(pattern=f"{name}-.*")}
    assert listed.keys() == {*idle, f"{name}-open"}
    assert {it.coordinator_id for it in listed.values()} == {1, 2, 3}
    (ongoing,) = admin.list_transactions(["Ongoing"], pattern=f"{name}-.*")
    assert [it.transactional_id for it in admin.list_transactions([], [ongoing.producer_id])] == [
        f"{name}-open"
    ]
    described = admin.describe_transactions([*idle, f"{name}-open", f"{name}-nobody"])
    missing = described.pop(f"{name}-nobody")
    assert isinstance(missing, KafkaError) and missing.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    for id, it in described.items():
        assert isinstance(it, TransactionDescription)
        assert (it.coordinator_id, it.producer_id) == (listed[id].coordinator_id, listed[id].producer_id)
    known = described[f"{name}-open"]
    assert isinstance(known, TransactionDescription) and known.partitions == tuple(partitions)

    def begins() -> set[int | None]:
        """Where the transaction begins for the leaders, and for every replica."""
        answers = [admin.describe_producers(partitions, broker_id=id) for id in (None, 1, 2, 3)]
        states = [it for found in answers for it in found.values() if not isinstance(it, KafkaError)]
        assert len(states) == 4 * len(partitions)
        return {one.transaction_start_offset for producers in states for one in producers}

    wait_until("followers know of the transaction", lambda: begins() == {0}, PATIENCE_S)
    admin.force_terminate_transaction(f"{name}-open")
    wait_until("followers know of its end", lambda: begins() == {None}, PATIENCE_S)
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
