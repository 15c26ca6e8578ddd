"""The requests of administrators about groups: the same answers as Apache Kafka's, and the same effects."""

from collections.abc import Callable, Iterator

import pytest

from pykraft.runtime.address import parse_address
from tests.interop.clusters import own_cluster
from tests.interop.group_script import NAMES, GroupScript
from tests.interop.java_jars import KafkaTools
from tests.interop.kafka_logs import kafka

pytestmark = pytest.mark.interop

Both = Callable[[Callable[[GroupScript], object]], object]


@pytest.fixture(scope="module")
def both(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Do the same with both brokers: the answers must be the same, and are returned."""
    directory = tmp_path_factory.mktemp("brokers")
    with (
        kafka(kafka_tools, directory) as broker,
        own_cluster(1) as cluster,
    ):
        broker.start(group_initial_rebalance_delay_ms="0")
        scripts = [GroupScript(parse_address(at)) for at in (broker.address, cluster.bootstrap_servers)]
        for script in scripts:
            script.prepare()

        def ask(question: Callable[[GroupScript], object]) -> object:
            by_kafka, by_pykraft = (question(script) for script in scripts)
            assert by_pykraft == by_kafka
            return by_pykraft

        yield ask
        for script in scripts:
            script.close()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_groups_are_listed_alike(both: Both, version: int) -> None:
    assert both(lambda script: script.list_groups(version))


@pytest.mark.parametrize(
    ("states", "types"),
    [
        (["stable"], []),
        (["STABLE", "Empty"], []),
        ([" empty "], []),
        (["nonsense"], []),
        ([""], []),
        (["Dead"], []),
        ([], ["classic"]),
        ([], ["Consumer"]),
        ([], [" consumer "]),
        ([], ["share"]),
        ([], ["nonsense"]),
        ([], ["nonsense", "classic"]),
        (["empty"], ["consumer"]),
    ],
)
def test_filters_select_the_same_groups(both: Both, states: list[str], types: list[str]) -> None:
    both(lambda script: script.list_groups(5, states, types))


@pytest.mark.parametrize("version", [4, 5, 6])
def test_classic_groups_are_described_alike(both: Both, version: int) -> None:
    both(lambda script: script.describe_classic(version))


def test_consumer_groups_are_described_alike(both: Both) -> None:
    both(GroupScript.describe_consumer)


@pytest.mark.parametrize("group_id", [*NAMES, ""])
def test_offsets_are_deleted_alike(both: Both, group_id: str) -> None:
    both(lambda script: script.delete_offsets(group_id, []))
    both(lambda script: script.delete_offsets(group_id, [("nothing", (0,)), ("u", ()), ("nothing", (1,))]))
    both(lambda script: script.delete_offsets(group_id, [("u", (7, 1, -1, 1)), ("none", (0,)), ("u", (1,))]))
    both(lambda script: script.delete_offsets(group_id, [("t", (1,)), ("u", (1,)), ("u", (1,))]))
    both(lambda script: script.offsets(group_id))
    # A group that is nothing but offsets ends with the last one here, and in Kafka only after a restart.
    all_there_are = [("t", (0, 1))] if group_id == "simple" else [("t", (0, 1)), ("u", (0, 1))]
    for _ in range(2):
        both(lambda script: script.delete_offsets(group_id, all_there_are))
        both(lambda script: script.offsets(group_id))


def test_groups_are_deleted_alike(both: Both) -> None:
    both(lambda script: script.delete_groups([*NAMES, "", "nobody"]))
    both(lambda script: script.list_groups(5))
    both(lambda script: script.describe_classic(6))
    both(lambda script: script.delete_groups(NAMES))
