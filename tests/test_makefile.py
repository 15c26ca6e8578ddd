"""The set-up of a clone, as far as it can be tested without installing anything."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that the set-up checks, in a clone whose packages are installed."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "installed").touch()
    return tmp_path


def make(clone: Path, *targets: str) -> None:
    subprocess.run(["make", "--silent", *targets], cwd=clone, check=True, timeout=60)


def test_set_up_after_clean_creates_what_mypy_looks_for(clone: Path) -> None:
    package = clone / "build" / "path" / "pykraft"
    make(clone, "setup")
    assert package.resolve() == clone
    make(clone, "clean")
    assert not package.exists()
    make(clone, "setup")
    assert package.resolve() == clone
