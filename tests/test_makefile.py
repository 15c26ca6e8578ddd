"""The set-up of a clone, as far as it can be tested without installing anything."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that the set-up checks, in a clone whose packages are installed."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
        os.utime(tmp_path / name, (0, 0))
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


def test_every_package_that_set_up_installs_is_pinned() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = listed["project"]["optional-dependencies"]
    needed = [*listed["project"]["dependencies"]]
    for group in (*extras.values(), *listed["dependency-groups"].values()):
        needed += group
    names = {re.split(r"[\[<>=; ]", requirement)[0] for requirement in needed}
    pinned = set(re.findall(r"^([a-z\d-]+)==[\w.]+(?: ;.*)?$", pins, re.M))
    assert len(pinned) > 50
    assert names - pinned == set(), "make pins"
