"""Faults of membership on real nodes: inflicted, and repaired to the cluster that there was before."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.nemeses.administrator import Administrator
from pykraft.jepsen_like.faults.nemeses.choice import KINDS
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import NotPossibleNowError, Repair
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

TOPIC, PARTITIONS = "t", 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    directory = tmp_path_factory.mktemp("membership") / "cluster"
    with ProcessCluster(directory, 3, FAST_FAILOVER, spares=1, dynamic_voters=True) as cluster:
        cluster.format()
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS, configs={"min.insync.replicas": "2"})
        yield cluster
        assert cluster.stop() == [], cluster.output_tails()


@pytest.fixture
def admin(cluster: ProcessCluster) -> Iterator[Administrator]:
    with Administrator(cluster) as admin:
        yield admin


class Records:
    """What was written to every partition, and must be there."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._servers = cluster.bootstrap_servers
        self._written = [0] * PARTITIONS

    def write(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "acks": "all", "enable.idempotence": True})
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, "x", partition=partition)
            self._written[partition] += 1
        assert producer.flush(PATIENCE_S) == 0

    def check(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "unused"})
        try:
            for partition, count in enumerate(self._written):
                place = TopicPartition(TOPIC, partition)
                assert consumer.get_watermark_offsets(place, timeout=PATIENCE_S) == (0, count)
        finally:
            consumer.close()


@pytest.fixture(scope="module")
def records(cluster: ProcessCluster) -> Records:
    return Records(cluster)


def inflict(cluster: ProcessCluster, name: str, *victims: int) -> Repair:
    kind = KINDS[name]
    assert kind.why_unavailable(cluster) is None
    settings = {"every_s": 0.2, "level": 28}
    return kind.inflict(cluster, Fault(0, name, Target.ANY, 0.0, 1.0, 0.3, settings=settings), victims)


def test_repair_goes_on_when_a_disk_cannot_be_read(admin: Administrator) -> None:
    """Another fault may have its node's disk."""
    asked = iter([OSError(errno.EIO, "rotten"), KafkaError(ErrorCode.REQUEST_TIMED_OUT), None])

    def is_done() -> bool:
        if error := next(asked):
            raise error
        return True

    admin.until("all is repaired", is_done)
    assert next(asked, "none is left") == "none is left"


def test_active_controller_is_removed_and_votes_again(
    cluster: ProcessCluster, admin: Administrator, records: Records
) -> None:
    before = admin.voters()
    leader = admin.client.describe_quorum().leader_id
    repair = inflict(cluster, "remove-controller", leader)
    assert set(admin.voters()) == set(before) - {leader}
    records.write()
    repair()
    assert admin.voters() == before
    records.write()
    records.check()


def test_node_joins_with_replicas_and_leaves_nothing_behind(
    cluster: ProcessCluster, admin: Administrator, records: Records
) -> None:
    before, voters = admin.placements(), admin.voters()
    repair = inflict(cluster, "add-node")
    assert cluster.members == [1, 2, 3, 4] and set(admin.voters()) == {1, 2, 3, 4}
    wait_until(
        "replicas are on it", lambda: any(4 in held for held in admin.placements().values()), PATIENCE_S
    )
    records.write()
    repair()
    assert cluster.members == [1, 2, 3] and admin.voters() == voters and admin.placements() == before
    assert not cluster.nodes[4].running and not any(cluster.log_dir(4).iterdir())
    assert {broker.id for broker in admin.client.describe_cluster(include_fenced_brokers=True).brokers} == {
        1,
        2,
        3,
    }
    records.check()


def test_node_whose_disk_cannot_be_formatted_does_not_join(cluster: ProcessCluster) -> None:
    """A fault that began before the node left may still have its disk."""
    foreign = cluster.log_dir(4) / "meta.properties"
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("version=1\n")
    with pytest.raises(NotPossibleNowError, match=r"meta\.properties"):
        inflict(cluster, "add-node")
    assert cluster.members == [1, 2, 3]
    foreign.unlink()


def test_broker_is_removed_and_gets_its_replicas_back(
    cluster: ProcessCluster, admin: Administrator, records: Records
) -> None:
    before = admin.placements()
    repair = inflict(cluster, "remove-broker", 2)
    assert not cluster.nodes[2].running and admin.brokers() == [1, 3]
    assert all(2 not in replicas for replicas in admin.placements().values())
    records.write()
    repair()
    assert admin.placements() == before
    cluster.wait_in_sync(TOPIC, PATIENCE_S)
    records.check()


def test_partitions_move_about_and_return(
    cluster: ProcessCluster, admin: Administrator, records: Records
) -> None:
    before = admin.placements()
    repair = inflict(cluster, "move-partitions")
    wait_until("some are elsewhere", lambda: admin.placements() != before, PATIENCE_S)
    records.write()
    repair()
    assert admin.placements() == before
    cluster.wait_in_sync(TOPIC, PATIENCE_S)
    records.check()


def test_preferred_leaders_are_elected_if_others_lead(cluster: ProcessCluster, admin: Administrator) -> None:
    def all_lead() -> bool:
        (topic,) = admin.client.describe_topics([TOPIC])
        return all(partition.leader == partition.replicas[0] for partition in topic.partitions)

    admin.until("preferred leaders", lambda: _elects_nobody(cluster))
    assert all_lead()
    cluster.nodes[1].stop()
    cluster.ensure_running([1])
    cluster.wait_in_sync(TOPIC, PATIENCE_S)
    inflict(cluster, "elect-leaders")()
    wait_until("preferred leaders again", all_lead, PATIENCE_S)


def _elects_nobody(cluster: ProcessCluster) -> bool:
    try:
        inflict(cluster, "elect-leaders")
    except NotPossibleNowError:
        return True
    return False


def test_levels_and_configurations_change_and_return(cluster: ProcessCluster, admin: Administrator) -> None:
    before = admin.client.describe_features().features
    repairs = [inflict(cluster, "feature-levels"), inflict(cluster, "broker-configs")]
    assert admin.client.describe_features().features != before
    for repair in repairs:
        repair()
    assert admin.client.describe_features().features == before


def test_refused_change_is_not_possible_now(cluster: ProcessCluster) -> None:
    with pytest.raises(NotPossibleNowError, match="cannot be removed"):
        inflict(cluster, "remove-controller", 4)


def test_fixed_voters_cannot_be_changed(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path, 3, spares=1)
    assert KINDS["add-node"].why_unavailable(cluster) == KINDS["remove-controller"].why_unavailable(cluster)
    assert ProcessCluster(tmp_path, 3, dynamic_voters=True).members == [1, 2, 3]
