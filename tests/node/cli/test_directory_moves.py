"""Moves between the directories of brokers, as ``pykraft reassign-partitions`` begins and shows them."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import ConfigChange, LogDirDescription, LogDirReplica
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.node.cli.reassign import reassign_partitions
from pykraft.node.cli.reassign.throttles import set_directory_throttle
from pykraft.node.cli.shared.directory_moves import (
    Place,
    Replica,
    cancel_moves,
    describe_move,
    find_places,
    start_moves,
)
from pykraft.node.cli.shared.partition_files import read_reassignment_file

T0 = TopicPartition("t", 0)
HERE, THERE = Replica(1, T0), Replica(2, T0)


class Client:
    """Brokers 1 and 2. ``dirs``: what each says; ``answers``: what a move of a replica is answered with."""

    def __init__(self, dirs: Mapping[int, list[LogDirDescription]] | None = None) -> None:
        self.dirs = dirs or {}
        self.answers: dict[Replica, list[ErrorCode]] = {}
        self.moved: list[tuple[Replica, str]] = []
        self.changes: list[tuple[str, ConfigChange]] = []

    def describe_cluster(self, *, controllers: bool = False) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(id=1), SimpleNamespace(id=2)])

    def describe_log_dirs(self, brokers: list[int]) -> dict[int, list[LogDirDescription]]:
        return {broker: self.dirs.get(broker, []) for broker in brokers}

    def alter_replica_log_dirs(self, broker: int, wanted: Mapping[TopicPartition, str]) -> Any:
        self.moved += [(Replica(broker, partition), path) for partition, path in wanted.items()]
        return {it: self.answers.get(Replica(broker, it), [ErrorCode.NONE]).pop(0) for it in wanted}

    def alter_configs(self, kind: ConfigResourceType, name: str, changes: list[ConfigChange]) -> None:
        self.changes += [(name, change) for change in changes]

    def list_partition_reassignments(self) -> dict[TopicPartition, Any]:
        return {}

    def describe_topics(self, names: list[str]) -> list[Any]:
        partition = SimpleNamespace(index=0, replicas=(1, 2))
        return [SimpleNamespace(name=name, partitions=[partition]) for name in names]

    @property
    def admin(self) -> AdminClient:
        return cast(AdminClient, self)


def log_dir(path: str, *partitions: TopicPartition, future: bool = False, failed: bool = False) -> Any:
    error = ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NONE
    replicas = tuple(LogDirReplica(it, 10, 0, future) for it in partitions)
    return LogDirDescription(path, error, replicas, 100, 50)


class Time:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def sleep_ms(self, pause_ms: int) -> None:
        self.ms += pause_ms


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (None, "Partition t-0 cannot be found in any live log directory on broker 1."),
        (
            Place(),
            "Partition t-0 is not found in any live log dir on broker 1. There is likely an offline log "
            "directory on the broker.",
        ),
        (Place("/a", "/b"), "Reassignment of replica t-0-1 is still in progress."),
        (Place("/a", "/c"), "Partition t-0 on broker 1 is being moved to log dir /c instead of /b."),
        (Place("/b"), "Reassignment of replica t-0-1 completed successfully."),
        (Place("/b", "/c"), "Partition t-0 on broker 1 is being moved to log dir /c instead of /b."),
        (Place("/a"), "Partition t-0 on broker 1 is not being moved from log dir /a to /b."),
    ],
)
def test_each_state_of_a_move_has_kafkas_line(place: Place | None, line: str) -> None:
    assert describe_move(HERE, "/b", place) == line


def test_places_are_those_that_live_brokers_and_working_directories_tell() -> None:
    dirs = {
        1: [log_dir("/a", T0), log_dir("/b", T0, future=True), log_dir("/c", TopicPartition("u", 0))],
        2: [log_dir("/a", T0, failed=True)],
    }
    asked = [HERE, THERE, Replica(3, T0)]
    assert find_places(Client(dirs).admin, asked) == {HERE: Place("/a", "/b"), THERE: Place()}


def test_a_move_begins_as_soon_as_its_broker_has_the_replica(capsys: pytest.CaptureFixture[str]) -> None:
    client, time = Client(), Time()
    client.answers[THERE] = [ErrorCode.REPLICA_NOT_AVAILABLE] * 3 + [ErrorCode.NONE]
    start_moves(client.admin, {HERE: "/b", THERE: "/c"}, 300, time.now_ms, time.sleep_ms)
    assert client.moved == [(HERE, "/b"), *[(THERE, "/c")] * 4], "only what has not begun is asked for again"
    assert capsys.readouterr().out.splitlines() == [
        "Successfully started moving log directory to /b for replica t-0 with broker 1 ",
        "Successfully started moving log directory to /c for replica t-0 with broker 2 ",
    ]


def test_a_move_that_does_not_begin_or_is_refused_is_an_error() -> None:
    client, time = Client(), Time()
    client.answers[THERE] = [ErrorCode.REPLICA_NOT_AVAILABLE] * 9
    with pytest.raises(click.ClickException) as late:
        start_moves(client.admin, {THERE: "/c"}, 300, time.now_ms, time.sleep_ms)
    assert late.value.message == "Timed out before log directory move could be started for: t-0-2"
    assert time.ms == 300
    client.answers[HERE] = [ErrorCode.LOG_DIR_NOT_FOUND]
    with pytest.raises(click.ClickException) as refused:
        start_moves(client.admin, {HERE: "/x"}, 300, time.now_ms, time.sleep_ms)
    assert refused.value.message == "Failed to alter dir for t-0-1: LOG_DIR_NOT_FOUND"


def test_only_moves_under_way_are_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client({1: [log_dir("/a", T0), log_dir("/b", T0, future=True)], 2: [log_dir("/a", T0)]})
    cancel_moves(client.admin, {HERE: "/b", THERE: "/b"}, 300)
    assert client.moved == [(HERE, "/a")]
    cancel_moves(Client({1: [log_dir("/b", T0)]}).admin, {HERE: "/b"}, 300)
    assert capsys.readouterr().out.splitlines()[-1] == "None of the specified partition moves are active."


def test_the_throttle_of_directories_is_set_where_replicas_move_and_cleared_when_none_does() -> None:
    client = Client({1: [log_dir("/a", T0), log_dir("/b", T0, future=True)]})
    set_directory_throttle(client.admin, [1, 1], 5000)
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert client.changes == [("1", ConfigChange(name, ConfigOperation.SET, "5000"))]
    client.changes = []
    with click.Context(reassign_partitions.command):
        reassign_partitions._verify(client.admin, {T0: (1, 2)}, {HERE: "/b"}, False)
        assert client.changes == [], "a move is under way"
        client.dirs = {1: [log_dir("/b", T0)]}
        reassign_partitions._verify(client.admin, {T0: (1, 2)}, {HERE: "/b"}, False)
    assert ("1", ConfigChange(name, ConfigOperation.DELETE)) in client.changes


def write(path: Path, **partition: object) -> str:
    file = path / "move.json"
    partitions = [{"topic": "t", "partition": 0, "replicas": [1, 2], **partition}]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(file)


def test_directories_of_a_file_are_those_of_its_replicas_in_order(tmp_path: Path) -> None:
    assert read_reassignment_file(write(tmp_path)) == ({T0: (1, 2)}, {})
    file = write(tmp_path, log_dirs=["any", "/b"])
    assert read_reassignment_file(file) == ({T0: (1, 2)}, {THERE: "/b"})


@pytest.mark.parametrize(
    "wrong",
    [{"log_dirs": ["/b"]}, {"log_dirs": ["/b", 7]}, {"replicas": []}, {"replicas": [1, 1]}, {"log_dirs": 1}],
)
def test_file_with_other_directories_than_replicas_is_refused(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    with pytest.raises(click.UsageError):
        read_reassignment_file(write(tmp_path, **wrong))
