"""``pykraft storage``: what it prints, what it refuses and with which exit status."""

import re
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result

from pykraft.metadata_log.bootstrap import read_bootstrap_checkpoint
from pykraft.node.cli.root import cli
from pykraft.runtime.os_disk import OsDisk

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
VOTERS = "1@127.0.0.1:9093"

ServerFile = Callable[..., Path]


def storage(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["storage", *map(str, arguments)])


def test_random_ids_are_22_characters_and_differ() -> None:
    ids = {storage("random-uuid").output.strip() for _ in range(5)}
    assert len(ids) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", item) and not item.startswith("-") for item in ids)


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
