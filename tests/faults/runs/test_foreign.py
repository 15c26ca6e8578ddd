"""A cluster that somebody else runs: what is made there, what is removed, and what is never touched."""

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException

from pykraft.jepsen_like.faults.checkers.counting import count_run
from pykraft.jepsen_like.faults.history import Event, MemoryHistory
from pykraft.jepsen_like.faults.runs import foreign
from pykraft.jepsen_like.faults.runs.foreign import (
    PREFIX,
    ForeignCluster,
    ForeignClusterError,
)
from pykraft.jepsen_like.faults.runs.run_config import RunConfig, RunError
from pykraft.jepsen_like.faults.runs.runner import run
from pykraft.jepsen_like.faults.workloads.workload import TopicSpec
from pykraft.node.cli import jepsen

SERVERS = "127.0.0.1:1"


class Admin:
    """In the place of confluent-kafka's; ``refused`` are the names that nothing can be done with."""

    brokers = (1, 2, 3)
    topics: tuple[str, ...] = ("theirs",)
    groups: tuple[str, ...] = ("theirs", f"{PREFIX}of-another-run-g")
    refused: frozenset[str] = frozenset()
    created: dict[str, Any]
    removed: list[str]

    def __init__(self, settings: dict[str, Any]) -> None:
        assert settings["bootstrap.servers"] == SERVERS

    def list_topics(self, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(
            brokers=dict.fromkeys(Admin.brokers), topics=dict.fromkeys([*Admin.topics, *Admin.created])
        )

    def list_consumer_groups(self, request_timeout: float) -> Future[SimpleNamespace]:
        listed: Future[SimpleNamespace] = Future()
        listed.set_result(SimpleNamespace(valid=[SimpleNamespace(group_id=one) for one in Admin.groups]))
        return listed

    def create_topics(self, topics: list[Any], operation_timeout: float) -> dict[str, Future[None]]:
        Admin.created.update({topic.topic: topic for topic in topics})
        return self._answers([topic.topic for topic in topics], KafkaError.POLICY_VIOLATION)

    def delete_topics(self, names: list[str], operation_timeout: float) -> dict[str, Future[None]]:
        Admin.removed += names
        return self._answers(names, KafkaError.TOPIC_AUTHORIZATION_FAILED)

    def delete_consumer_groups(self, names: list[str], request_timeout: float) -> dict[str, Future[None]]:
        Admin.removed += names
        return self._answers(names, KafkaError.NON_EMPTY_GROUP)

    def _answers(self, names: list[str], error: int) -> dict[str, Future[None]]:
        answers: dict[str, Future[None]] = {name: Future() for name in names}
        for name, answer in answers.items():
            if any(name.endswith(refused) for refused in Admin.refused):
                answer.set_exception(KafkaException(KafkaError(error)))
            else:
                answer.set_result(None)
        return answers


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> type[Admin]:
    monkeypatch.setattr(foreign, "AdminClient", Admin)
    monkeypatch.setattr(Admin, "created", {}, raising=False)
    monkeypatch.setattr(Admin, "removed", [], raising=False)
    return Admin


def connected() -> ForeignCluster:
    cluster = ForeignCluster(SERVERS)
    cluster.connect(lambda line: None)
    return cluster


def named(cluster: ForeignCluster, name: str) -> TopicSpec:
    return TopicSpec(f"{cluster.prefix}{name}", 1)


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(5, 3, "2"), (3, 3, "2"), (2, 2, "1"), (1, 1, "1")]
)
def test_topics_have_as_many_replicas_as_there_are_brokers_for(
    monkeypatch: pytest.MonkeyPatch, brokers: int, replicas: int, in_sync: str
) -> None:
    monkeypatch.setattr(Admin, "brokers", tuple(range(brokers)))
    history = MemoryHistory(lambda: 0)
    connected().create([TopicSpec("t", 4)], history)
    ((name, topic),) = Admin.created.items()
    assert (name, topic.num_partitions, topic.replication_factor) == ("t", 4, replicas)
    assert topic.config == {"min.insync.replicas": in_sync}
    assert [(event.op, event.value, event.detail) for event in history.events] == [
        ("topic", "t", topic.config)
    ]


def test_only_what_has_the_prefix_of_the_run_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = connected(), list[str]()
    assert cluster.prefix.startswith(PREFIX)
    cluster.create([named(cluster, "t")], MemoryHistory(lambda: 0))
    monkeypatch.setattr(Admin, "topics", (*Admin.topics, f"{PREFIX}of-another-run-t"))
    monkeypatch.setattr(Admin, "groups", (*Admin.groups, f"{cluster.prefix}g"))
    cluster.tidy_up(said.append)
    assert Admin.removed == [f"{cluster.prefix}t", f"{cluster.prefix}g"]
    assert said == []


def test_after_an_anomaly_everything_stays_and_is_said() -> None:
    cluster, said = connected(), list[str]()
    cluster.create([named(cluster, "t")], MemoryHistory(lambda: 0))
    cluster.tidy_up(said.append, is_kept=True)
    assert Admin.removed == []
    assert cluster.prefix in said[0]


def test_what_cannot_be_removed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = connected(), list[str]()
    cluster.create([named(cluster, "t"), named(cluster, "u")], MemoryHistory(lambda: 0))
    monkeypatch.setattr(Admin, "refused", frozenset({"u"}))
    cluster.tidy_up(said.append)
    assert len(said) == 1 and said[0].startswith(f"NOT REMOVED: {cluster.prefix}u: ")


def test_groups_are_removed_when_their_static_members_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = connected(), list[str]()
    monkeypatch.setattr(Admin, "groups", (f"{cluster.prefix}g", f"{cluster.prefix}h"))
    monkeypatch.setattr(Admin, "refused", frozenset({"g"}))
    waits: list[float] = []

    def wait(duration_s: float) -> None:
        waits.append(duration_s)
        monkeypatch.setattr(Admin, "refused", frozenset[str]())

    monkeypatch.setattr("pykraft.jepsen_like.faults.runs.foreign.time.sleep", wait)
    cluster.tidy_up(said.append)
    assert (said, len(waits)) == ([], 1)


def test_interrupted_run_removes_what_it_has_made() -> None:
    with pytest.raises(KeyboardInterrupt), connected() as cluster:
        cluster.create([named(cluster, "t")], MemoryHistory(lambda: 0))
        raise KeyboardInterrupt
    assert Admin.removed == list(Admin.created)


def test_what_a_killed_run_has_left_is_named_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admin, "topics", ("theirs", f"{PREFIX}1234-append"))
    said: list[str] = []
    ForeignCluster(SERVERS).connect(said.append)
    assert f"{PREFIX}1234-append" in said[0] and "theirs" not in said[0]
    assert Admin.removed == []


def test_refused_topics_and_a_taken_prefix_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = connected()
    monkeypatch.setattr(Admin, "refused", frozenset({"t"}))
    with pytest.raises(ForeignClusterError, match=r"topic .*-t cannot be created: "):
        cluster.create([named(cluster, "t")], MemoryHistory(lambda: 0))
    monkeypatch.setattr(Admin, "topics", (f"{cluster.prefix}x",))
    with pytest.raises(ForeignClusterError, match="already a topic"):
        cluster.connect(lambda line: None)


def test_run_without_a_cluster_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(admin: Admin, timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(Admin, "list_topics", fail)
    with pytest.raises(RunError, match=f"no cluster at {SERVERS}"):
        run(RunConfig(bootstrap_servers=SERVERS, out_dir=tmp_path))


def test_run_without_faults_counts_if_enough_was_written() -> None:
    sends = [Event("ok", "p", 1, "send", "t-0", str(n), n) for n in range(20_000)]
    of_others = Event("info", "runner", 0, "run", detail={"bootstrap_servers": SERVERS})
    own = Event("info", "runner", 0, "run", detail={"bootstrap_servers": None})
    assert count_run([of_others, *sends], 60).counts
    assert not count_run([of_others, *sends[1:]], 60).counts
    assert not count_run([own, *sends], 60).counts


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--bootstrap-server", SERVERS, "--nemesis", "kill"], "--nemesis is for nodes that the run starts"),
        (["--bootstrap-server", SERVERS, "--system", "kafka"], "--system is for nodes that the run starts"),
        (["--bootstrap-server", "nowhere"], "bootstrap.servers: "),
        (["--bootstrap-server", ","], "names no server"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: list[str], error: str) -> None:
    result = CliRunner().invoke(jepsen.command, ["run", *options])
    assert result.exit_code == 2
    assert error in result.output


def test_workload_that_the_java_client_does_not_cover_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the Java clients do not cover the workload groups"):
        run(RunConfig(workload="groups", client="java", out_dir=tmp_path))
