"""The log directories of a node, and moves between them, over the wire."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import NewTopic
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.node.cli.root import cli
from pykraft.testing.processes.waits import wait_until
from tests.node.sites import Site, run_node

pytestmark = pytest.mark.slow


def log_dirs(site: Site, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["log-dirs", "--bootstrap-server", site.broker, "--describe", *options])
    return result.exit_code, result.output


def where(site: Site, *options: str) -> dict[str, set[str]]:
    """The replicas in each directory; copies have a ``+``."""
    code, output = log_dirs(site, *options)
    first, second, content = output.splitlines()
    assert (code, first) == (0, "Querying brokers for log directories information")
    assert second == "Received log directory information from brokers 1"
    found: dict[str, Any] = json.loads(content)
    assert found["version"] == 1
    (broker,) = found["brokers"]
    assert broker["broker"] == 1 and all(one["error"] is None for one in broker["logDirs"])
    return {
        one["logDir"]: {"+" * it["isFuture"] + it["partition"] for it in one["partitions"]}
        for one in broker["logDirs"]
    }


def test_a_replica_moves_between_the_directories_of_a_node_and_is_found_there_again(site: Site) -> None:
    first, second = str(site.first), str(site.second)

    def move() -> None:
        before = where(site)
        assert {"t1-0", "t2-0"} <= before[first] | before[second]
        source, target = (first, second) if "t1-0" in before[first] else (second, first)
        with AdminClient(site.broker) as admin:
            wanted = {TopicPartition("t1", 0): target, TopicPartition("none", 0): target}
            assert admin.alter_replica_log_dirs(1, wanted) == {
                TopicPartition("t1", 0): ErrorCode.NONE,
                TopicPartition("none", 0): ErrorCode.REPLICA_NOT_AVAILABLE,
            }
        moved = {source: set[str](), target: {"t1-0"}}
        wait_until("t1-0 has moved", lambda: where(site, "--topic-list", "t1") == moved, 15)

    assert asyncio.run(run_node(site, move)) == []
    now = {path.name for path in site.second.glob("t?-0")}, {path.name for path in site.first.glob("t?-0")}
    assert sorted(map(len, now)) == [0, 2], "both are in one directory now"
    kept = {first: now[1], second: now[0]}
    seen: list[dict[str, set[str]]] = []
    assert asyncio.run(run_node(site, lambda: seen.append(where(site, "--broker-list", "1")))) == []
    assert seen == [kept]


def test_a_reassignment_may_name_directories(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "move.json"

    def run(*options: str) -> str:
        given = ["--bootstrap-server", site.broker, "--reassignment-json-file", str(file), *options]
        result = CliRunner().invoke(cli, ["reassign-partitions", *given])
        assert result.exit_code == 0, result.output
        return result.output

    def move() -> None:
        first, second = str(site.first), str(site.second)
        source, target = (first, second) if "t1-0" in where(site)[first] else (second, first)
        partition = {"topic": "t1", "partition": 0, "replicas": [1], "log_dirs": [target]}
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        printed = run("--execute", "--replica-alter-log-dirs-throttle", "100000000").splitlines()
        assert json.loads(printed[2])["partitions"][0]["log_dirs"] == [source]
        assert "The replica-alter-dir throttle limit was set to 100000000 B/s" in printed
        assert printed[-1].startswith(f"Successfully started moving log directory to {target} for replica")
        done = "Reassignment of replica t1-0-1 completed successfully."
        wait_until("t1-0 has moved", lambda: done in run("--verify").splitlines(), 15)
        (shown,) = json.loads(run("--verify", "--json"))
        assert shown["directories"] == [
            {"broker": 1, "logDir": target, "futureLogDir": None, "targetLogDir": target}
        ]

    assert asyncio.run(run_node(site, move)) == []


def test_a_node_that_has_cordoned_all_directories_gets_no_new_topics(site: Site) -> None:
    def configure(*options: str) -> str:
        entity = ("--alter", "--entity-type", "brokers", "--entity-name", "1")
        result = CliRunner().invoke(cli, ["configs", "--bootstrap-server", site.broker, *entity, *options])
        return result.output

    def is_refused(name: str) -> bool:
        with AdminClient(site.broker) as admin:
            (created,) = admin.create_topics([NewTopic(name, 1, 1)], timeout_ms=5_000)
        return created.error is not None and created.error.code is ErrorCode.INVALID_REPLICATION_FACTOR

    def use() -> None:
        assert "is not a directory of log.dirs" in configure("--add-config", "cordoned.log.dirs=/elsewhere")
        configure("--add-config", f"cordoned.log.dirs=[{site.first},{site.second}]")
        names = iter(f"new{number}" for number in range(1000))
        wait_until("the controller knows", lambda: is_refused(next(names)), 15)
        configure("--add-config", f"cordoned.log.dirs={site.first}")
        wait_until("the controller knows", lambda: not is_refused("later"), 15)
        wait_until("created", lambda: "later-0" in where(site)[str(site.second)], 15)
        configure("--delete-config", "cordoned.log.dirs")

    assert asyncio.run(run_node(site, use)) == []


def test_brokers_that_do_not_exist_are_named(site: Site) -> None:
    answers: list[tuple[int, str]] = []
    assert asyncio.run(run_node(site, lambda: answers.append(log_dirs(site, "--broker-list", "1,7")))) == []
    ((code, output),) = answers
    assert code == 1
    assert "The given brokers do not exist from --broker-list: 7. Current existent brokers: 1" in output
