"""Golden transcripts: the whole conversation of each scenario.

After a change that alters them, rewrite them with ``PYKRAFT_REWRITE_SCENARIOS=1`` and read the diff.
"""

import os
from pathlib import Path

import pytest

from pykraft.jepsen_like.simulation.quorum.scenario import play

SCENARIOS = sorted((Path(__file__).resolve().parents[2] / "scenarios").glob("*.txt"))


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 15


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_plays_out_as_written(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    played = play(written)
    if os.environ.get("PYKRAFT_REWRITE_SCENARIOS"):
        path.write_text(played, encoding="utf-8")
        return
    assert played == written
