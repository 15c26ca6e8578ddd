"""``pykraft dev``: a ready cluster in one command, gone with Ctrl-C unless its data was to be kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Pykraft = Callable[..., Any]


@pytest.mark.parametrize("nodes", [1, 3])
def test_ctrl_c_stops_the_cluster_cleanly_and_removes_its_directory(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path, nodes: int
) -> None:
    with start_pykraft("dev", "--port", "0", "--nodes", str(nodes), TMPDIR=str(tmp_path)) as running:
        bootstrap = running.wait_for("Bootstrap servers:").split(": ")[1]
        assert len(bootstrap.split(",")) == nodes
        directory = Path(running.wait_for("Data: ").removeprefix("Data: ").split(". ")[0])
        assert directory.parent == tmp_path and len(list(directory.iterdir())) == nodes
        created = pykraft("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "t")
        assert created.returncode == 0, created.stderr
        described = pykraft("topics", "--bootstrap-server", bootstrap, "--describe", "--topic", "t").stdout
        assert f"ReplicationFactor: {nodes}" in described
        assert running.stop() == 0, running.printed
        assert "Traceback" not in running.printed
        assert " ERROR " not in running.printed
    assert list(tmp_path.iterdir()) == []


def test_data_in_a_given_directory_survives_a_restart(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    for attempt in range(2):
        with start_pykraft("dev", "--port", "0", "--data-dir", str(data)) as running:
            bootstrap = running.wait_for("Bootstrap servers:").split(": ")[1]
            if attempt == 0:
                sent = pykraft(
                    "producer", "--bootstrap-server", bootstrap, "--topic", "kept", stdin="one\ntwo\n"
                )
                assert sent.returncode == 0, sent.stderr
            read = pykraft(
                *("consumer", "--bootstrap-server", bootstrap, "--topic", "kept", "--partition", "0"),
                *("--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"),
            )
            assert read.stdout == "one\ntwo\n", read.stderr
            assert running.stop() == 0, running.printed
    assert (data / "node-1" / "meta.properties").exists()


def test_data_of_a_cluster_of_another_size_is_refused_and_left_as_it_was(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    dev = ("dev", "--port", "0", "--data-dir", str(data))
    with start_pykraft(*dev) as running:
        bootstrap = running.wait_for("Bootstrap servers:").split(": ")[1]
        created = pykraft("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "kept")
        assert created.returncode == 0, created.stderr
        assert running.stop() == 0, running.printed
    before = {str(path): path.stat().st_size for path in data.rglob("*") if path.is_file()}
    refused = pykraft(*dev, "--nodes", "3")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"Error: {data} holds a cluster of 1 node (node-1), not of 3 nodes:"
        " give --nodes 1, or another --data-dir\n"
    )
    assert {str(path): path.stat().st_size for path in data.rglob("*") if path.is_file()} == before
    with start_pykraft(*dev) as running:
        bootstrap = running.wait_for("Bootstrap servers:").split(": ")[1]
        assert pykraft("topics", "--bootstrap-server", bootstrap, "--list").stdout == "kept\n"
        assert running.stop() == 0, running.printed


def test_overrides_reach_every_node(pykraft: Pykraft, start_pykraft: Pykraft) -> None:
    with start_pykraft("dev", "--port", "0", "--override", "auto.create.topics.enable=false") as running:
        bootstrap = running.wait_for("Bootstrap servers:").split(": ")[1]
        refused = pykraft(
            *("producer", "--bootstrap-server", bootstrap, "--topic", "missing"),
            *("--producer-property", "topic.metadata.propagation.max.ms=200"),
            stdin="x\n",
        )
        assert refused.returncode == 1
        assert "Unknown topic or partition" in refused.stderr


def test_mistakes_are_said_in_one_line(pykraft: Pykraft, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = pykraft("dev", "--port", "0", "--data-dir", str(tmp_path / "file"))
    assert refused.returncode == 1
    assert refused.stderr == f"Error: cannot read {tmp_path / 'file' / 'node-1'}: Not a directory\n"
    refused = pykraft("dev", "--port", "0", "--override", "no.such.key=1")
    assert refused.returncode == 1
    assert "no.such.key" in refused.stderr.splitlines()[-1]
    assert pykraft("dev", "--nodes", "0").returncode == 2
