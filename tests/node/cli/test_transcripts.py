"""The tools of a cluster say what ``tests/node/transcripts`` say, on one node in the process of the test."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from pykraft.testing import Cluster
from tests.node.cli.transcript import Step, play, read_transcripts

TRANSCRIPTS = sorted((Path(__file__).parents[1] / "transcripts").glob("*.txt"))
FORMATS = Path(__file__).parents[2] / "data" / "formats" / "0.1" / "data"
_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        pytest.param(path, steps, id=f"{path.stem}-{name}")
        for path in TRANSCRIPTS
        for name, steps in read_transcripts(path).items()
    ],
)
def test_tool_says_what_is_written_down(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path, steps: list[Step]
) -> None:
    """In a directory of its own, with a topic that has yet to be created, and groups, of its own name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYKRAFT_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
    known = {
        "topic": f"topic{next(_numbers)}-",
        "server": cluster.bootstrap_servers,
        "controller": cluster.bootstrap_controllers,
        "directory": str(tmp_path),
        "formats": str(FORMATS),
    }
    play(path, steps, tmp_path, known)
