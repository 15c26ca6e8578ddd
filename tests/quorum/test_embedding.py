"""The worked example of docs/quorum.md does what it says."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "embed_raft.py"


def test_every_replica_of_the_example_commits_every_word() -> None:
    example = runpy.run_path(str(EXAMPLE))
    assert example["main"]() == dict.fromkeys((1, 2, 3), example["WORDS"])
