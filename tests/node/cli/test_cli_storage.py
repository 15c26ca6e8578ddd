"""``pykraft storage``: what it prints, what it refuses and with which exit status."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pykraft.metadata_log.bootstrap import read_bootstrap_checkpoint
from pykraft.node.cli.root import cli
from pykraft.runtime.os_disk import OsDisk

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
OTHER_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
VOTERS = "1@127.0.0.1:9093"

ServerFile = Callable[..., Path]


def storage(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["storage", *map(str, arguments)])


def refusal(*arguments: str | Path) -> str:
    """The one line on standard error when a command is refused."""
    result = storage(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_random_ids_are_22_characters_and_differ() -> None:
    ids = {storage("random-uuid").output.strip() for _ in range(5)}
    assert len(ids) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", item) and not item.startswith("-") for item in ids)


def test_formatted_directory_is_described_by_info(server_file: ServerFile, tmp_path: Path) -> None:
    file = server_file(controller_quorum_voters=VOTERS)
    formatted = storage("format", "-t", CLUSTER, "-c", file)
    assert formatted.exit_code == 0
    assert f"Formatted {tmp_path / 'server-data'}" in formatted.output
    info = storage("info", "-c", file)
    assert info.exit_code == 0
    for line in (f"cluster.id={CLUSTER}", "node.id=1", "version=1", "directory.id="):
        assert line in info.output
    shown = json.loads(storage("info", "-c", file, "--json").output)
    (directory,) = shown["directories"]
    assert directory == {
        "path": str(tmp_path / "server-data"),
        "clusterId": CLUSTER,
        "directoryId": directory["directoryId"],
        "nodeId": 1,
        "version": 1,
    }
    assert shown["problems"] == []


def test_formatting_again_is_refused_or_ignored(server_file: ServerFile, tmp_path: Path) -> None:
    file = server_file(controller_quorum_voters=VOTERS)
    assert storage("format", "-t", CLUSTER, "-c", file).exit_code == 0
    before = (tmp_path / "server-data" / "meta.properties").read_bytes()
    said = refusal("format", "-t", CLUSTER, "-c", file)
    assert "already formatted" in said and "--ignore-formatted" in said
    ignored = storage("format", "-t", CLUSTER, "-c", file, "--ignore-formatted")
    assert ignored.exit_code == 0 and "already formatted" in ignored.output
    assert CLUSTER in refusal("format", "-t", OTHER_CLUSTER, "-c", file, "-g")
    assert (tmp_path / "server-data" / "meta.properties").read_bytes() == before


def test_info_of_an_unformatted_directory_exits_1(server_file: ServerFile, tmp_path: Path) -> None:
    (tmp_path / "server-data").mkdir()
    result = storage("info", "-c", server_file(controller_quorum_voters=VOTERS))
    assert result.exit_code == 1
    assert f"{tmp_path / 'server-data'} is not formatted" in result.output
    result = storage("info", "--json", "-c", server_file(controller_quorum_voters=VOTERS))
    assert result.exit_code == 1
    assert json.loads(result.output) == {
        "directories": [{"path": str(tmp_path / "server-data")}],
        "problems": [f"{tmp_path / 'server-data'} is not formatted."],
    }


def test_info_of_another_nodes_directory_exits_1(server_file: ServerFile) -> None:
    storage("format", "-t", CLUSTER, "-c", server_file(controller_quorum_voters=VOTERS))
    result = storage("info", "-c", server_file(node_id="2", controller_quorum_voters="2@127.0.0.1:9093"))
    assert result.exit_code == 1
    assert "belongs to node 1, not to 2" in result.output


def test_controller_without_voters_is_refused_with_the_three_choices(server_file: ServerFile) -> None:
    said = refusal("format", "-t", CLUSTER, "-c", server_file())
    for option in ("--standalone", "--initial-controllers", "--no-initial-controllers"):
        assert option in said


@pytest.mark.parametrize("choice", [["--standalone"], ["--no-initial-controllers"], ["-I", "1@h:1:x"]])
def test_voters_may_not_be_given_twice(server_file: ServerFile, choice: list[str]) -> None:
    file = server_file(controller_quorum_voters=VOTERS)
    assert "controller.quorum.voters" in refusal("format", "-t", CLUSTER, "-c", file, *choice)


def test_standalone_and_initial_controllers_write_the_first_voters(
    server_file: ServerFile, tmp_path: Path
) -> None:
    directory_id = storage("random-uuid").output.strip()
    voters = f"1@127.0.0.1:9093:{directory_id}"
    choices = {"a": ["--standalone"], "b": ["--initial-controllers", voters]}
    for name, choice in choices.items():
        assert storage("format", "-t", CLUSTER, "-c", server_file(name), *choice).exit_code == 0
        metadata = tmp_path / f"{name}-data" / "__cluster_metadata-0"
        assert (metadata / "00000000000000000000-0000000000.checkpoint").exists()
    assert f"directory.id={directory_id}" in (tmp_path / "b-data" / "meta.properties").read_text()
    plain = storage("format", "-t", CLUSTER, "-c", server_file("c"), "--no-initial-controllers")
    assert plain.exit_code == 0
    assert not list((tmp_path / "c-data").glob("__cluster_metadata-0/*.checkpoint"))


def test_error_in_a_configuration_is_reported_in_one_line(server_file: ServerFile, tmp_path: Path) -> None:
    assert "cannot read" in refusal("format", "-t", CLUSTER, "-c", tmp_path / "missing.properties")
    misspelt = server_file(controller_quorum_voters=VOTERS, log_segment_byte="1")
    assert "log.segment.bytes" in refusal("format", "-t", CLUSTER, "-c", misspelt)
    assert "node.id" in refusal("info", "-c", server_file(node_id="one"))
    assert "cluster-id" in refusal("format", "-t", " ", "-c", server_file(controller_quorum_voters=VOTERS))


def test_missing_options_are_usage_errors(server_file: ServerFile) -> None:
    result = storage("format", "-c", server_file())
    assert result.exit_code == 1
    assert "--cluster-id" in result.stderr


def test_cluster_starts_with_the_levels_given_when_formatting(
    server_file: ServerFile, tmp_path: Path
) -> None:
    file = server_file(controller_quorum_voters=VOTERS)
    formatted = storage(
        *("format", "-t", CLUSTER, "-c", file, "--release-version", "4.0"),
        *("--feature", "eligible.leader.replicas.version=1"),
    )
    assert "metadata.version 4.0-IV3" in formatted.output
    levels = read_bootstrap_checkpoint(OsDisk(), str(tmp_path / "server-data"))
    assert levels == {
        "metadata.version": 25,
        "group.version": 1,
        "transaction.version": 2,
        "eligible.leader.replicas.version": 1,
    }


def test_unsupported_levels_are_refused(server_file: ServerFile, tmp_path: Path) -> None:
    file = server_file(controller_quorum_voters=VOTERS)

    def said(*options: str) -> str:
        return refusal("format", "-t", CLUSTER, "-c", file, *options)

    assert "3.3-IV3 to 4.3-IV0" in said("-r", "5.0")
    assert "give one of" in said("-r", "4.0", "-f", "metadata.version=22")
    assert "needs metadata.version 4.0-IV0" in said("-r", "3.9", "-f", "group.version=1")
    assert "31 is not supported" in said("-f", "metadata.version=31")
    assert "3 is not supported, only 0 to 2" in said("-f", "transaction.version=3")
    assert "unknown" in said("-f", "tests.version=2")
    assert "first controllers" in said("-f", "kraft.version=1")
    for wrong in ("group.version", "group.version=x", "group.version=4.0", "metadata.version=9.9"):
        assert storage("format", "-t", CLUSTER, "-c", file, "-f", wrong).exit_code == 1
    twice = ("-f", "group.version=1", "-f", "group.version=0")
    assert storage("format", "-t", CLUSTER, "-c", file, *twice).exit_code == 1
    assert not (tmp_path / "server-data" / "meta.properties").exists()
