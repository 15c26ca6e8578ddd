"""Whether the simulations would notice: every bug in tests/mutants/quorum* is planted and must be found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MUTANTS = Path(__file__).resolve().parents[2] / "mutants"


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(MUTANTS / "run_mutants.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["quorum", "quorum_nodes"])
@pytest.mark.timeout(900)
def test_every_planted_bug_is_found(suite):
    planted = len(list((MUTANTS / suite).glob("*.patch")))
    assert planted >= 8
    done = _run("--suite", suite)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{planted}/{planted} killed"


@pytest.mark.slow
def test_every_patch_says_which_bug_it_plants():
    for patch in MUTANTS.glob("quorum*/*.patch"):
        assert patch.read_text(encoding="utf-8").partition("\n--- ")[0].strip().endswith(".")
