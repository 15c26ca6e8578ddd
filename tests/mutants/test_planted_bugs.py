"""Planted bugs: every patch applies and describes its bug; one of each suite is tried.

``make mutants`` tries them all, .ci/run a fixed tenth and those that a change can touch; they must be found.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pykraft.jepsen_like.simulation.quorum.ring import ALL_DIRECTED
from tests.mutants.run_mutants import MOST_CHOSEN, changed_files, chosen_for, is_drawn, killer_of, named_by

MUTANTS = Path(__file__).parent
PACKAGE = MUTANTS.parents[1]
KILLER = r"a fault run: .*|seed \d+ of ring (?:[12]|quorum_nodes)(?: with \w+)?|tests/[\w/]+/test_\w+\.py"
"""What is not a test or a schedule that was written by hand."""
PATCHES = sorted(MUTANTS.glob("*/*.patch"))


def _name(patch: Path) -> str:
    return f"{patch.parent.name}/{patch.stem}"


def test_every_patch_applies_to_the_code_as_it_is() -> None:
    """As far as can be told without starting git a thousand times; it says what is wrong with the others."""
    for patch in (patch for patch in PATCHES if not _applies(patch)):
        command = ["git", "apply", "--check", "--whitespace=nowarn", str(patch)]
        checked = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, f"{_name(patch)}: {checked.stderr}"


def _applies(patch: Path) -> bool:
    """Whether what each hunk replaces is there, in their order."""
    for part in re.split(r"^--- a/", patch.read_text(encoding="utf-8"), flags=re.M)[1:]:
        source = PACKAGE / part.partition("\n")[0]
        if not source.exists():
            return False
        text, at = f"\n{source.read_text(encoding='utf-8')}", 0
        for hunk in re.split(r"^@@ .*\n", part, flags=re.M)[1:]:
            old = [line[1:] for line in hunk.splitlines() if line[:1] in ("", " ", "-")]
            block = "\n" + "".join(f"{line}\n" for line in old)
            if (found := text.find(block, at)) < 0:
                return False
            at = found + len(block) - 1
    return True


def test_every_patch_describes_its_bug() -> None:
    for patch in PATCHES:
        assert patch.read_text(encoding="utf-8").partition("\n--- ")[0].strip().endswith("."), _name(patch)


def test_every_patch_names_a_killer_that_exists() -> None:
    for patch in PATCHES:
        killer = named_by(patch) or ""
        path, _, test = killer.partition("::")
        if test:
            name = re.escape(test.partition("[")[0].rpartition("::")[2])
            source = (PACKAGE / path).read_text(encoding="utf-8")
            assert re.search(rf"^ *(?:async )?def {name}\(", source, re.M), f"{_name(patch)}: {killer}"
        elif directed := re.fullmatch(r"schedule ([\w-]+) of ring 1", killer):
            assert directed[1] in ALL_DIRECTED, f"{_name(patch)}: {killer}"
        else:
            assert re.fullmatch(KILLER, killer), f"{_name(patch)}: {killer or 'no killer: --name-killers'}"


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
        [sys.executable, "-m", "tests.mutants.run_mutants", "--suite", suite, planted],
        cwd=PACKAGE,
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


def test_what_has_changed_is_tried_with_a_tenth_that_is_always_the_same() -> None:
    patch = next(one for one in PATCHES if not is_drawn(one, 10, "the fixed tenth"))
    nothing, left_out = chosen_for(frozenset(), PATCHES, "any")
    assert len(PATCHES) / 13 < len(nothing) < len(PATCHES) / 8 and left_out == 0
    killer = (named_by(patch) or "").partition("::")[0]
    for changed in (changed_files(patch)[0], str(patch.relative_to(PACKAGE)), killer):
        chosen, left_out = chosen_for(frozenset({changed}), PATCHES, "any")
        assert patch in chosen and nothing < chosen
    everything = frozenset(file for one in PATCHES for file in changed_files(one))
    chosen, left_out = chosen_for(everything, PATCHES, "any")
    assert nothing < chosen and len(chosen) == MOST_CHOSEN and left_out == len(PATCHES) - MOST_CHOSEN


@pytest.mark.parametrize(
    ("suite", "found", "killer"),
    [
        (
            "logs",
            "FAILED ../../x/tests/log_store/test_a.py::test_b[a - b] - OSError: no",
            "tests/log_store/test_a.py::test_b[a - b]",
        ),
        (
            "logs",
            "FAILED tests/log_store/test_a.py::test_b - assert [1] == []",
            "tests/log_store/test_a.py::test_b",
        ),
        ("quorum", "seed 31: InvariantViolation: x", "seed 31 of ring 1"),
        ("quorum", "figure-8: InvariantViolation: x", "schedule figure-8 of ring 1"),
        ("quorum_nodes", "seed 6: AssertionError: ", "seed 6 of ring quorum_nodes"),
        ("transactions", "seed 3: InvariantViolation: x", "seed 3 of ring 2 with transactions"),
    ],
)
def test_what_has_found_a_bug_is_named_as_patches_name_it(suite: str, found: str, killer: str) -> None:
    assert killer_of(suite, found) == killer
