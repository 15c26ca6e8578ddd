"""``pykraft consumer-groups`` without a cluster: values that it reads, options that do not go together."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListedOffset
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import (
    BrokerDescription,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
    Outcome,
    PartitionDescription,
    TopicDescription,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.node.cli.groups.java_times import parse_datetime, parse_duration_ms
from pykraft.node.cli.root import cli
from pykraft.node.cli.shared import cluster_client
from pykraft.node.cli.shared.kafka_errors import exception_class

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
BROKER = BrokerDescription(1, "host", 9092, None)
LOG = {T0: (2, 10), T1: (0, 7), U0: (0, 0)}
"""Where each partition's log begins and ends."""

AT_MS = 5_000
"""The time of the record at offset 6 of partition 0, the only one that has a time."""


class Cluster:
    """An admin client of a cluster that has no broker."""

    def __init__(self) -> None:
        self.described = {
            "g": GroupDescription("g", "classic", "Empty", "consumer", "", BROKER, ()),
            "busy": GroupDescription("busy", "classic", "Stable", "consumer", "range", BROKER, (member(),)),
            "other": GroupDescription("other", "classic", "Stable", "connect", "", BROKER, ()),
        }
        self.committed = {"g": {T0: 4, U0: 0}, "busy": {T0: 9}}
        self.leaders = dict.fromkeys(LOG, 1) | {}
        self.altered: list[str] = []
        self.refused: dict[TopicPartition, KafkaError] = {}

    def list_groups(self, states: Sequence[str] = (), *_: object) -> list[GroupListing]:
        return [
            GroupListing(it.group_id, it.protocol_type, it.state, it.type, 1)
            for it in self.described.values()
            if it.protocol_type == "consumer" and (not states or it.state in states)
        ]

    def describe_groups(self, names: Sequence[str]) -> Mapping[str, GroupDescription | KafkaError]:
        missing = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found.")
        return {name: self.described.get(name, missing) for name in names}

    def group_offsets(self, name: str) -> dict[TopicPartition, CommittedOffset]:
        return {it: CommittedOffset(at, None, "") for it, at in self.committed.get(name, {}).items()}

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        if not {it.topic for it in LOG} >= set(names):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [
            TopicDescription(
                name,
                ZERO_UUID,
                False,
                tuple(
                    PartitionDescription(it.partition, self.leaders.get(it), 0, (1,), (1,), ())
                    for it in LOG
                    if it.topic == name
                ),
            )
            for name in names
        ]

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        def at(partition: TopicPartition, timestamp: int) -> int | None:
            if timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
                return LOG[partition][timestamp == LATEST_TIMESTAMP]
            return 6 if partition == T0 and timestamp <= AT_MS else None

        return {it: ListedOffset(at(it, timestamp), None, None) for it, timestamp in timestamps.items()}

    def alter_group_offsets(
        self, name: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, KafkaError | None]:
        self.altered.append(name)
        self.committed[name] = self.committed.get(name, {}) | {it: at.offset for it, at in offsets.items()}
        return {it: self.refused.get(it) for it in offsets}

    def delete_groups(self, names: Sequence[str]) -> list[Outcome]:
        return [
            Outcome(name, None if name == "g" else KafkaError(ErrorCode.NON_EMPTY_GROUP)) for name in names
        ]


def member() -> MemberDescription:
    return MemberDescription("m", None, "c", "/h", {"t": (0, 1)})


Run = Callable[..., Result]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    @contextmanager
    def client(*_: object) -> Any:
        yield cluster

    monkeypatch.setattr(cluster_client, "admin_client", client)

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(cli, ["consumer-groups", "--bootstrap-server", "b:1", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Error" not in result.stdout and "org.apache" not in result.stdout + result.stderr
        return result

    return invoke


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--to-earliest", "--topic", "t"), {T0: 2, T1: 0, U0: 0}),
        (("--to-latest", "--all-topics"), {T0: 10, U0: 0}),
        (("--to-latest", "--topic", "t:1"), {T0: 4, T1: 7, U0: 0}),
        (("--to-offset", "0", "--topic", "t"), {T0: 2, T1: 0, U0: 0}),
        (("--to-offset", "8", "--topic", "t:0,1"), {T0: 8, T1: 7, U0: 0}),
        (("--shift-by", "3", "--topic", "t:0"), {T0: 7, U0: 0}),
        (("--shift-by", "-3", "--topic", "t:0"), {T0: 2, U0: 0}),
        (("--shift-by", "0", "--topic", "t:0"), {T0: 4, U0: 0}),
        (("--to-current", "--topic", "t"), {T0: 4, T1: 7, U0: 0}),
        (("--to-datetime", "1970-01-01T00:00:05.000", "--topic", "t"), {T0: 6, T1: 7, U0: 0}),
        (("--to-datetime", "1970-01-01T00:00:05.001", "--topic", "t"), {T0: 10, T1: 7, U0: 0}),
        (("--to-datetime", "1960-01-01T00:00:00.000", "--topic", "t"), {T0: 6, T1: 7, U0: 0}),
        (("--by-duration", "P90000D", "--topic", "t:0"), {T0: 6, U0: 0}),
        (("--by-duration", "PT1H", "--topic", "t:0"), {T0: 10, U0: 0}),
    ],
)
def test_offsets_are_set_where_the_options_say_and_only_with_execute(
    run: Run, cluster: Cluster, options: tuple[str, ...], expected: dict[TopicPartition, int]
) -> None:
    before = dict(cluster.committed["g"])
    assert run("--reset-offsets", "--group", "g", *options).exit_code == 0
    assert run("--reset-offsets", "--group", "g", *options, "--dry-run").exit_code == 0
    assert (cluster.committed["g"], cluster.altered) == (before, [])
    result = run("--reset-offsets", "--group", "g", *options, "--execute")
    assert (result.exit_code, cluster.committed["g"]) == (0, expected)


def test_group_with_members_is_left_alone_and_the_others_are_reset(run: Run, cluster: Cluster) -> None:
    given = ("--reset-offsets", "--group", "busy", "--group", "g", "--to-latest", "--all-topics", "--execute")
    result = run(*given)
    assert (result.exit_code, cluster.altered) == (0, ["g"])
    assert "Error: Assignments can only be reset if the group 'busy' is inactive" in result.stderr
    assert cluster.committed["busy"] == {T0: 9}


def test_no_group_is_reset_if_a_later_one_cannot_be(run: Run, cluster: Cluster) -> None:
    cluster.described["h"] = cluster.described["g"]
    given = ("--reset-offsets", "--group", "g", "--group", "h", "--shift-by", "1", "--topic", "t:0")
    assert run(*given, "--execute").exit_code == 1
    assert cluster.altered == []


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ("t:9", 'The partitions "t-9" do not exist'),
        ("none", "This server does not host this topic-partition."),
        ("none:0", "This server does not host this topic-partition."),
    ],
)
def test_nothing_is_set_where_a_partition_does_not_exist(
    run: Run, cluster: Cluster, scope: str, said: str
) -> None:
    result = run(
        "--reset-offsets", "--group", "g", "--to-latest", "--topic", "t", "--topic", scope, "--execute"
    )
    assert (result.exit_code, cluster.altered) == (0, [])
    assert result.stderr == f"Error: Executing consumer group command failed due to {said}\n"


def test_partition_without_leader_is_not_reset_and_is_described_without_its_end(
    run: Run, cluster: Cluster
) -> None:
    del cluster.leaders[T0]
    result = run("--reset-offsets", "--group", "g", "--to-offset", "5", "--all-topics", "--execute")
    assert (result.exit_code, cluster.altered) == (0, [])
    assert 'The partitions "t-0" have no leader' in result.stderr
    rows = [line.split() for line in run("--describe", "--group", "g").stdout.splitlines()[2:]]
    assert rows[0][1:6] == ["t", "0", "4", "-", "-"]
    assert rows[1][1:6] == ["u", "0", "0", "0", "0"]


def test_offset_that_was_refused_is_reported(run: Run, cluster: Cluster) -> None:
    cluster.refused = {T0: KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members")}
    result = run("--reset-offsets", "--group", "g", "--to-latest", "--all-topics", "--execute")
    assert result.exit_code == 0
    assert "the group has members (t-0)" in result.stderr


def plan(tmp_path: Path, text: str) -> tuple[str, ...]:
    file = tmp_path / "plan.csv"
    file.write_bytes(text.encode())
    return "--reset-offsets", "--execute", "--from-file", str(file)


@pytest.mark.parametrize(
    "text", ["t,0,8\nu,0,0\n", "t,0,8\r\nu,0,0\r\n\r\n", 'g,"t",0,8\ng,u,0,0', "g,t,0,8\nx,t,0,1\n"]
)
def test_offsets_come_from_a_file_with_or_without_groups(
    run: Run, cluster: Cluster, tmp_path: Path, text: str
) -> None:
    assert run(*plan(tmp_path, text), "--group", "g").exit_code == 0
    assert cluster.committed["g"] == {T0: 8, U0: 0}


@pytest.mark.parametrize(
    "text", ["", "t,0\n", "t,0,x\n", "t,0,1\ng,t,0,1\n", "t,0,1\n\nt,1,1\n", '"t,0,1\n', "t,0,1,2,3"]
)
def test_nothing_is_set_from_a_file_of_which_a_line_makes_no_sense(
    run: Run, cluster: Cluster, tmp_path: Path, text: str
) -> None:
    assert run(*plan(tmp_path, text), "--group", "g").exit_code == 1
    assert cluster.altered == []


def test_file_without_the_group_is_reported(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    result = run(*plan(tmp_path, "x,t,0,1\n"), "--group", "g")
    assert (result.exit_code, cluster.committed["g"]) == (0, {T0: 4, U0: 0})
    assert result.stderr == "Error: No reset plan for group g found\n"


def test_lag_is_the_distance_to_the_end_and_owners_come_first(run: Run, cluster: Cluster) -> None:
    cluster.committed["busy"] = {T0: 9, U0: 0}
    lines = run("--describe", "--group", "busy").stdout.splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["busy", "t", "0", "9", "10", "1", "m", "/h", "c"],
        ["busy", "t", "1", "-", "7", "-", "m", "/h", "c"],
        ["busy", "u", "0", "0", "0", "0", "-", "-", "-"],
    ]


def test_group_of_another_protocol_type_is_not_described(run: Run) -> None:
    result = run("--describe", "--group", "other")
    assert result.exit_code == 0
    assert result.stderr.endswith("due to GroupId other is not a consumer group (connect).\n")


def test_groups_that_were_deleted_are_named_beside_those_that_were_not(run: Run) -> None:
    result = run("--delete", "--group", "g", "--group", "busy")
    assert result.exit_code == 0
    assert result.stdout == "These consumer groups were deleted successfully: 'g'\n"
    assert result.stderr == "Error: Group 'busy' could not be deleted due to: The group is not empty.\n"


@pytest.mark.parametrize("options", [("--describe",), ("--describe", "--members"), ("--describe", "--state")])
def test_missing_group_is_one_line_and_the_status_is_kafkas(run: Run, options: tuple[str, ...]) -> None:
    result = run(*options, "--group", "x")
    said = "Error: Executing consumer group command failed due to Group x not found.\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", said)
    in_json = run(*options, "--group", "x", "--json")
    assert (in_json.exit_code, in_json.stdout, in_json.stderr) == (1, "", said)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:00.5", 5),
        ("1970-01-02T00:00:00.000Z", 86_400_000),
        ("1970-01-01T02:00:00.001+02:00", 1),
        ("1970-01-01T00:00:00.000-0130", 5_400_000),
        ("1969-12-31T23:59:59.999", -1),
        ("2000-02-29T12:34:56.789+01", 951_824_096_789),
    ],
)
def test_times_are_read_to_the_millisecond(text: str, milliseconds: int) -> None:
    assert parse_datetime(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    ["", "1970-01-01", "1970-01-01T00:00:00", "1970-02-30T00:00:00.000", "1970-01-01T24:00:00.000", "5"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT0S", 0),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("-PT1M", -60_000),
        ("PT-1.5S", -1_500),
        ("pt36h", 129_600_000),
    ],
)
def test_durations_are_read_as_by_java(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1H", "PT1D", "P1.5D", "P1W"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration_ms(text)


def test_codes_have_the_names_of_javas_exceptions() -> None:
    package = "org.apache.kafka.common.errors."
    assert exception_class(ErrorCode.GROUP_ID_NOT_FOUND) == f"{package}GroupIdNotFoundException"
    assert exception_class(ErrorCode.REQUEST_TIMED_OUT) == f"{package}TimeoutException"
