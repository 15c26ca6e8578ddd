"""``pykraft topics`` on a cluster: topics by regular expression and id, filters of descriptions, refusals."""

import re
from collections.abc import Iterator
from itertools import count

import pytest

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.node.cli_runner import answer, output, refusal

_numbers = count(1)


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def one() -> Iterator[Cluster]:
    """What was changed is seen at once."""
    with Cluster() as cluster:
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


def test_topics_are_named_by_a_regular_expression(one: Cluster, prefix: str) -> None:
    a, b, other = (one.create_topic(f"{prefix}{name}") for name in ("a", "b", "other"))
    either = f"{prefix}[ab]"
    assert output(*topics(one, "--list"), "--topic", either).split() == [a, b]
    assert output(*topics(one, "--list"), "--topic", f"{a},{other}").split() == [a, other]
    assert partitions(output(*topics(one, "--describe"), "--topic", either)) == [f"{a}-0", f"{b}-0"]
    output(*topics(one, "--alter --partitions 2"), "--topic", either)
    described = answer(*topics(one, "--describe"), "--topic", either)
    assert [it["partitionCount"] for it in described] == [2, 2]
    assert answer(*topics(one, "--delete"), "--topic", either) == {"deleted": [a, b]}
    assert output(*topics(one, "--list"), "--topic", f"{prefix}.*").split() == [other]
    for action in ("--delete", "--describe", "--alter --partitions 3"):
        missing = (*topics(one, action), "--topic", either)
        assert f"Topic '{either}' does not exist as expected" in refusal(*missing)
        assert output(*missing, "--if-exists") == ""
    assert "not a regular expression" in refusal(*topics(one, "--list"), "--topic", "(")


def test_topic_is_described_by_its_id(one: Cluster, prefix: str) -> None:
    topic = one.create_topic(f"{prefix}t")
    (known,) = answer(*topics(one, "--describe"), "--topic", topic)
    by_id = (*topics(one, "--describe"), "--topic-id")
    assert answer(*by_id, known["topicId"]) == [known]
    other = "AAAAAAAAAAAAAAAAAAAAAQ"
    assert f"TopicId '{other}' does not exist as expected" in refusal(*by_id, other)
    assert output(*by_id, other, "--if-exists") == ""
    assert "--topic-id" in refusal(*by_id, "short")


def test_configurations_of_topics_are_shown_wherever_they_were_set(one: Cluster, prefix: str) -> None:
    one.create_topic(f"{prefix}plain")
    one.create_topic(f"{prefix}set", configs={"retention.ms": "5"})
    described = (*topics(one, "--describe --topics-with-overrides"), "--topic", f"{prefix}.*")
    of_the_server = "min.insync.replicas=1"
    assert [line.partition("Configs: ")[2] for line in output(*described).splitlines()] == [
        of_the_server,
        f"{of_the_server},retention.ms=5",
    ]
    assert [it["partitions"] for it in answer(*described)] == [[], []]


def test_topic_that_exists_may_be_created_if_that_is_allowed(one: Cluster, prefix: str) -> None:
    new = (*topics(one, "--create"), "--topic", f"{prefix}t.x")
    created = output(*new).splitlines()
    assert created[0].startswith("WARNING: Due to limitations in metric names") and len(created) == 2
    assert answer(*new, "--if-not-exists") == {"topic": f"{prefix}t.x", "created": False}
    assert "TOPIC_ALREADY_EXISTS" in refusal(*new)


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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--create",), "--create needs --topic"),
        (("--alter", "--topic", "t"), "--alter needs --partitions"),
        (("--delete", "--topic", "t", "--config", "a=1"), "--config is an option of --create"),
        (("--list", "--partitions", "2"), "--partitions is an option of"),
        (("--create", "--topic", "t", "--if-exists"), "--if-exists is an option of"),
        (("--list", "--topic-id", "x"), "--topic-id is an option of --describe"),
        (("--delete", "--topic", "t", "--exclude-internal"), "--exclude-internal is an option of"),
        (("--create", "--topic", "t", "--replica-assignment", "1", "--partitions", "1"), "replaces"),
        (("--create", "--topic", "t", "--replica-assignment", "1:1"), "names a broker of partition 0 twice"),
        (("--create", "--topic", "t", "--replica-assignment", "1:2,1"), "partition 1 has 1 replicas"),
        (("--create", "--topic", "t", "--replica-assignment", "a"), "is not B:B"),
        (("--create", "--topic", "t", "--replication-factor", "40000"), "40000"),
        (("--list", "--create", "--topic", "t"), "give exactly one of"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused_before_anything_is_asked(
    options: tuple[str, ...], said: str
) -> None:
    assert said in refusal("topics", "--bootstrap-server", "127.0.0.1:1", *options)


def test_contradictory_filters_are_refused(one: Cluster) -> None:
    said = refusal(*topics(one, "--describe --topics-with-overrides --unavailable-partitions"))
    assert "--topics-with-overrides shows no partitions" in said
