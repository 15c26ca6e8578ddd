"""Jars from Maven Central, through Maven itself."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

NO_LOGGING: Final = "org.slf4j:slf4j-nop:1.7.36"


class MavenError(Exception):
    """Maven is not installed, failed, or took too long."""


def download(artifacts: Iterable[str], directory: Path, timeout_s: float, logging: str = NO_LOGGING) -> None:
    """Create ``directory`` with these ``group:artifact:version`` and what they need, whole or not at all.

    ``logging``: the artifact that receives what they log.
    """
    if shutil.which("mvn") is None:
        raise MavenError("mvn is not installed")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as project:
        (Path(project) / "pom.xml").write_text(_pom([*artifacts, logging]), encoding="utf-8")
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        try:
            done = subprocess.run(
                command, cwd=project, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise MavenError(f"Maven took more than {timeout_s} s") from None
        if done.returncode != 0:
            raise MavenError(f"Maven failed: {(done.stdout + done.stderr)[-500:]}")
        _move((Path(project) / "jars"), directory)


def _move(jars: Path, directory: Path) -> None:
    try:
        jars.rename(directory)
    except OSError:
        if not directory.exists():  # else another process was first
            raise


def cache_directory() -> Path:
    """Where jars are kept from one run to the next."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "pykraft-interop"


def _pom(artifacts: Iterable[str]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in (item.split(":") for item in artifacts)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>jars</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
