"""Planted bugs: every patch applies and describes its bug; one of each suite is tried.

``make mutants`` tries them all, .ci/run a third of them for every commit, and requires that they are found.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.run_mutants import is_drawn, named_by

MUTANTS = Path(__file__).parent
PACKAGE = MUTANTS.parents[1]
PATCHES = sorted(MUTANTS.glob("*/*.patch"))


def _name(patch: Path) -> str:
    return f"{patch.parent.name}/{patch.stem}"


@pytest.mark.parametrize("suite", sorted({patch.parent.name for patch in PATCHES}))
def test_every_patch_applies_to_the_code_as_it_is(suite: str) -> None:
    for patch in (MUTANTS / suite).glob("*.patch"):
        checked = subprocess.run(
            ["git", "apply", "--check", "--whitespace=nowarn", str(patch)],
            cwd=PACKAGE,
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, f"{_name(patch)}: {checked.stderr}"


@pytest.mark.parametrize("patch", PATCHES, ids=_name)
def test_every_patch_describes_its_bug(patch: Path) -> None:
    assert patch.read_text(encoding="utf-8").partition("\n--- ")[0].strip().endswith(".")


@pytest.mark.parametrize("patch", [patch for patch in PATCHES if "::" in (named_by(patch) or "")], ids=_name)
def test_every_test_that_a_patch_names_exists(patch: Path) -> None:
    path, _, test = (named_by(patch) or "").partition("::")
    name = test.partition("[")[0]
    assert re.search(rf"^def {name}\(", (PACKAGE / path).read_text(encoding="utf-8"), re.M), test


@pytest.mark.parametrize(
    "world",
    [
        "broker/restart_world.py",
        "broker/replicas/partition/test_partition_simulation.py",
        "group_coordinator/classic/test_classic_simulation.py",
        "group_coordinator/consumer/test_consumer_simulation.py",
        "metadata_log/controller/test_leadership_simulation.py",
    ],
)
def test_bugs_that_a_simulation_names_are_planted_for_it(world: str) -> None:
    """The bugs that keep a world of its own beside the simulation of whole nodes."""
    head = (MUTANTS.parent / world).read_text(encoding="utf-8").split('"""')[1]
    simulation = world.replace("/restart_world", "/replicas/partition/test_restart_simulation")
    found_by_it = {patch.stem for patch in PATCHES if f"tests/{simulation}::" in patch.read_text("utf-8")}
    named = set(re.findall(r"``([a-z]+(?:-[a-z]+)+)``", head))
    assert named and named <= found_by_it


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "planted"),
    [
        ("quorum", "no-log-up-to-date-check"),
        ("quorum_nodes", "vote-file-without-fsync"),
        ("quorum_units", "empty-log-is-a-new-one"),
        ("metadata", "answer-before-commit"),
        ("metadata_units", "lease-without-proof"),
        ("logs", "hole-of-one-offset"),
        ("groups", "commit-amid-a-sweep-forgotten"),
        ("transaction_coordinator", "zombie-passes-for-a-retry"),
        ("replication", "two-isr-requests-in-flight"),
        ("records", "base-offset-is-ignored"),
        ("files", "no-reserve"),
        ("adapters", "port-is-shared"),
        ("processes", "terminal-ends-what-nohup-started"),
    ],
)
def test_a_planted_bug_is_found(suite: str, planted: str) -> None:
    assert (MUTANTS / suite / f"{planted}.patch").exists()
    done = subprocess.run(
        [sys.executable, str(MUTANTS / "run_mutants.py"), "--suite", suite, planted],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "1/1 killed"


def test_a_share_is_a_part_and_another_text_draws_another() -> None:
    thirds = [{patch for patch in PATCHES if is_drawn(patch, 3, draw)} for draw in ("a", "b")]
    assert thirds[0] != thirds[1]
    assert all(len(PATCHES) / 4 < len(third) < len(PATCHES) / 2 for third in thirds)
    assert all(is_drawn(patch, 1, "any") for patch in PATCHES)
