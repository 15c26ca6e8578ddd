"""The client commands on a real node, with the flags, labels and columns of Kafka's tools."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., str]
_numbers = itertools.count(1)


@pytest.fixture
def run(pykraft: Callable[..., Any], dev_server: str) -> Run:
    """Run a command on the node; what it printed. ``fails_with`` is looked for in its one line of error."""

    def run_on_node(command: str, *arguments: str, stdin: str = "", fails_with: str | None = None) -> str:
        result = pykraft(command, "--bootstrap-server", dev_server, *arguments, stdin=stdin)
        if fails_with is not None:
            assert result.returncode == 1, result.stdout + result.stderr
            assert fails_with in result.stderr.splitlines()[-1]
            assert "Traceback" not in result.stderr
        else:
            assert result.returncode == 0, result.stdout + result.stderr
        output: str = result.stdout
        return output

    return run_on_node


@pytest.fixture
def topic(run: Run) -> str:
    name = f"tools-{next(_numbers)}"
    assert run("topics", "--create", "--topic", name, "--partitions", "2") == f"Created topic {name}.\n"
    return name


def fields(line: str) -> dict[str, str]:
    """``Name: value`` pairs of a tab-separated line."""
    return dict(pair for part in line.strip().split("\t") if len(pair := part.split(": ", 1)) == 2)


def table(text: str) -> list[dict[str, str]]:
    """A table whose columns are separated by two spaces or more."""
    header, *rows = [re.split(r"\s{2,}", line.strip()) for line in text.strip().splitlines()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_topic_is_described_with_kafkas_labels(run: Run, topic: str) -> None:
    first, *partitions = run("topics", "--describe", "--topic", topic).splitlines()
    described = fields(first)
    assert described["Topic"] == topic
    assert described["PartitionCount"] == "2" and described["ReplicationFactor"] == "1"
    assert len(described["TopicId"]) == 22
    assert [fields(line)["Partition"] for line in partitions] == ["0", "1"]
    for line in partitions:
        assert fields(line) | {"Partition": ""} == {
            "Topic": topic,
            "Partition": "",
            "Leader": "1",
            "Replicas": "1",
            "Isr": "1",
            **{key: value for key, value in fields(line).items() if key in ("Elr", "LastKnownElr")},
        }


def test_topics_are_listed_extended_and_deleted(run: Run, topic: str) -> None:
    assert topic in run("topics", "--list").splitlines()
    assert topic in json.loads(run("topics", "--list", "--json"))
    run("topics", "--alter", "--topic", topic, "--partitions", "3")
    assert len(run("topics", "--describe", "--topic", topic).splitlines()) == 4
    run("topics", "--create", "--topic", topic, fails_with="TOPIC_ALREADY_EXISTS")
    run("topics", "--create", "--topic", topic, "--if-not-exists")
    run("topics", "--delete", "--topic", topic)
    assert topic not in run("topics", "--list").splitlines()
    run("topics", "--delete", "--topic", topic, fails_with=topic)
    run("topics", "--delete", "--topic", topic, "--if-exists")


def test_topic_configs_are_set_and_shown(run: Run) -> None:
    name = f"tools-{next(_numbers)}"
    run("topics", "--create", "--topic", name, "--config", "retention.ms=4242")
    (shown,) = json.loads(run("topics", "--describe", "--topic", name, "--json"))
    assert shown["configs"] == {"retention.ms": "4242"}
    bad = ("topics", "--create", "--topic", "bad", "--config", "retention.ms=soon")
    run(*bad, fails_with="retention.ms")


def test_lines_are_produced_and_consumed_with_their_keys(run: Run, topic: str) -> None:
    produced = (
        "--property",
        "parse.key=true",
        "--property",
        "key.separator=:",
        "--compression-codec",
        "zstd",
    )
    run("producer", "--topic", topic, *produced, stdin="a:1\nb:2\nc:3\n")
    shown = ("--property=print.key=true", "--property=key.separator=:")
    until = ("--from-beginning", "--max-messages", "3", "--timeout-ms", "20000")
    lines = run("consumer", "--topic", topic, *shown, *until).splitlines()
    assert sorted(lines) == ["a:1", "b:2", "c:3"]
    run("producer", "--topic", topic, *produced, stdin="no separator\n", fails_with="no key separator")


def test_group_is_listed_described_and_deleted(run: Run, topic: str) -> None:
    group = f"group-{topic}"
    run("producer", "--topic", topic, stdin="1\n2\n3\n")
    read = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "3")
    assert sorted(run("consumer", *read, "--timeout-ms", "20000").split()) == ["1", "2", "3"]
    assert group in run("groups", "--list").splitlines()
    rows = table(run("groups", "--describe", "--group", group))
    for column in ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"):
        assert column in rows[0], column
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows if row["CURRENT-OFFSET"] != "-") == 3
    assert {row["LAG"] for row in rows} <= {"0", "-"}
    (state,) = json.loads(run("groups", "--describe", "--group", group, "--state", "--json"))
    assert (state["GROUP"], state["STATE"], state["#MEMBERS"]) == (group, "Empty", 0)
    assert run("groups", "--delete", "--group", group) == f"Deleted group {group}.\n"
    assert group not in run("groups", "--list").splitlines()
    run("groups", "--delete", "--group", group, fails_with=group)


def test_quorum_status_has_kafkas_labels(run: Run) -> None:
    text = run("metadata-quorum", "describe", "--status")
    status = dict(re.split(r":\s+", line, maxsplit=1) for line in text.splitlines())
    assert list(status) == [
        *("ClusterId", "LeaderId", "LeaderEpoch", "HighWatermark", "MaxFollowerLag", "MaxFollowerLagTimeMs"),
        *("CurrentVoters", "CurrentObservers"),
    ]
    assert status["LeaderId"] == "1" and int(status["HighWatermark"]) > 0
    assert [voter["id"] for voter in json.loads(status["CurrentVoters"])] == [1]
    (leader,) = table(run("metadata-quorum", "describe", "--replication"))
    assert list(leader) == [
        *("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp"),
        "Status",
    ]
    assert (leader["NodeId"], leader["Lag"], leader["Status"]) == ("1", "0", "Leader")


def test_unreachable_servers_are_an_error_of_one_line(pykraft: Callable[..., Any]) -> None:
    result = pykraft("topics", "--bootstrap-server", "127.0.0.1:1", "--list")
    assert result.returncode == 1
    assert result.stderr == "Error: nobody listens at 127.0.0.1:1\n"
    assert pykraft("topics", "--bootstrap-server", "nonsense", "--list").returncode == 2
    assert pykraft("topics", "--list").returncode == 2
