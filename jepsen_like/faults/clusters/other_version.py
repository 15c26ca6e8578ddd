"""Another version of this package, which nodes of a run can be started with: a directory, or a git revision.

A revision is exported into the run's directory. Its compiled modules are not there; nodes do without them.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import pykraft

_HERE: Final = Path(pykraft.__file__).parent
_MAIN: Final = "node/__main__.py"
_TIMEOUT_S: Final = 60.0


class OtherVersionError(ValueError):
    """The other version is not there, or cannot be imported; the message says why."""


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """``path`` holds a package ``pykraft``; ``name`` is for the history."""

    name: str
    path: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """With which ``python -m pykraft.node`` runs this version, wherever another one is installed."""
        before = os.environ.get("PYTHONPATH")
        paths = [str(self.path), *([before] if before else [])]
        return {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


def find_other_version(wanted: str | None, directory: Path) -> OtherVersion | None:
    """``wanted`` is the directory of a package or a git revision; None: the newest release, by its tag, or
    None if there is none. What has to be exported is put into ``directory``."""
    name = wanted or _newest_tag()
    if name is None:
        return None
    given = Path(name)
    if given.is_dir():
        found = OtherVersion(name, _as_package(given.absolute(), directory))
    else:
        found = OtherVersion(name, _export(name, directory))
    _check(found)
    return found


def _newest_tag() -> str | None:
    try:
        return _git("describe", "--tags", "--abbrev=0").decode().strip()
    except OtherVersionError:
        return None


def _as_package(given: Path, directory: Path) -> Path:
    """The package itself, or what holds it."""
    if (given / "pykraft" / _MAIN).is_file():
        return given
    if not (given / _MAIN).is_file():
        raise OtherVersionError(f"{given} is not the package pykraft, and does not hold it")
    directory.mkdir(parents=True)
    (directory / "pykraft").symlink_to(given, target_is_directory=True)
    return directory


def _export(revision: str, directory: Path) -> Path:
    archive = _git("archive", "--format=tar", "--end-of-options", revision)
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(directory / "pykraft", filter="data")
    return directory


def _git(*arguments: str) -> bytes:
    if not (_HERE / ".git").exists():
        raise OtherVersionError(f"{_HERE} is not a git repository, so there is no revision to export")
    try:
        done = subprocess.run(
            ["git", "-C", str(_HERE), *arguments], capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise OtherVersionError("git is not installed") from None
    if done.returncode != 0:
        raise OtherVersionError(
            f"git {' '.join(arguments)}: {done.stderr.decode('utf-8', 'replace').strip()}"
        )
    return done.stdout


def _check(version: OtherVersion) -> None:
    """That it is the one that is imported, and that it can be."""
    program = "import pykraft.node.run; print(pykraft.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **version.environment},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise OtherVersionError(f"{version.name} cannot be imported: {done.stderr.strip()[-500:]}")
    if Path(done.stdout.strip()) != version.path / "pykraft" / "__init__.py":
        raise OtherVersionError(f"in place of {version.name}, {done.stdout.strip()} is imported")
