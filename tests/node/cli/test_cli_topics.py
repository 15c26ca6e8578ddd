"""``pykraft topics`` on a cluster: topics by regular expression and id, filters of descriptions, refusals."""

import re
from collections.abc import Iterator
from itertools import count

import pytest

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.node.cli_runner import answer, output

_numbers = count(1)


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def prefix() -> str:
    """The beginning of the names of one test's topics."""
    return f"topics{next(_numbers)}-"


def topics(cluster: Cluster, action: str) -> tuple[str, ...]:
    return "topics", "--bootstrap-server", cluster.bootstrap_servers, *action.split()


def create(cluster: Cluster, topic: str, replicas: str, **configs: object) -> str:
    """Returns when the broker that is asked knows the topic."""
    given = [
        it for name, value in configs.items() for it in ("--config", f"{name.replace('_', '.')}={value}")
    ]
    output(*topics(cluster, "--create"), "--topic", topic, "--replica-assignment", replicas, *given)
    wait_until("it is known", lambda: topic in output(*topics(cluster, "--list")).split(), PATIENCE_S)
    return topic


def partitions(text: str) -> list[str]:
    """The partitions in a description, as ``topic-0``."""
    return [
        f"{topic}-{index}" for topic, index in re.findall(r"^\tTopic: (\S+)\tPartition: (\d+)", text, re.M)
    ]


def test_replicas_of_new_partitions_are_assigned_by_hand(three: Cluster, prefix: str) -> None:
    topic = create(three, f"{prefix}t", "1:2,2:3")
    ignored, new = "9:8,9:8", "3:1,1:3"
    output(
        *(*topics(three, "--alter --partitions 4"), "--topic", topic),
        *("--replica-assignment", f"{ignored},{new}"),
    )

    def replicas() -> list[list[int]]:
        by_ones = topics(three, "--describe --partition-size-limit-per-response 1")
        (shown,) = answer(*by_ones, "--topic", topic)
        return [it["replicas"] for it in shown["partitions"]]

    expected = [[1, 2], [2, 3], [3, 1], [1, 3]]
    wait_until("all partitions are there", lambda: replicas() == expected, PATIENCE_S)


def test_filters_leave_the_partitions_that_they_name(three: Cluster, prefix: str) -> None:
    everywhere = create(three, f"{prefix}everywhere", "1:2:3", min_insync_replicas=2)
    safe = create(three, f"{prefix}safe", "1:2:3", min_insync_replicas=3)
    alone = create(three, f"{prefix}alone", "3,1", min_insync_replicas=1)
    three.shut_down(3)
    described = (*topics(three, "--describe"), "--topic", f"{prefix}.*")
    wait_until("the node has left", lambda: "Leader: none" in output(*described), PATIENCE_S)
    expected = {
        "--under-replicated-partitions": [f"{alone}-0", f"{everywhere}-0", f"{safe}-0"],
        "--unavailable-partitions": [f"{alone}-0"],
        "--under-min-isr-partitions": [f"{alone}-0", f"{safe}-0"],
        "--at-min-isr-partitions": [f"{alone}-1", f"{everywhere}-0"],
    }
    for option, left in expected.items():
        text = output(*described, option)
        assert partitions(text) == left, option
        assert "PartitionCount" not in text, "lines of topics are left out"
        objects = answer(*described, option)
        assert [f"{it['topic']}-{at['partition']}" for it in objects for at in it["partitions"]] == left
    both = output(*described, "--unavailable-partitions", "--at-min-isr-partitions")
    assert partitions(both) == [f"{alone}-0", f"{alone}-1", f"{everywhere}-0"]
    three.heal()


def test_replicas_that_are_being_added_do_not_count(three: Cluster, prefix: str) -> None:
    topic = create(three, f"{prefix}t", "1")
    three.shut_down(2)
    with three.admin() as admin:
        admin.alter_partition_reassignments({TopicPartition(topic, 0): (3, 2)})
    (shown,) = answer(*topics(three, "--describe"), "--topic", topic)
    (partition,) = shown["partitions"]
    assert (shown["replicationFactor"], partition["removingReplicas"]) == (1, [1])
    assert sorted(partition["addingReplicas"]) == [2, 3]
    assert "\tRemoving Replicas: 1\t" in output(*topics(three, "--describe"), "--topic", topic)
    three.heal()
