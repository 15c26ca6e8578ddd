"""What is set before Spark starts, and why it cannot start."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pykraft.spark import session


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "JAVA_HOME"):
        monkeypatch.setenv(name, "restored afterwards")
        monkeypatch.delenv(name)


def listed(monkeypatch: pytest.MonkeyPatch, names: Iterable[str]) -> None:
    found = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr(session, "iter_modules", lambda: found)


def test_source_that_no_listing_shows_is_put_on_sparks_path_before_what_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed(monkeypatch, ["os", "pyspark"])
    spec = SimpleNamespace(origin=str(tmp_path / "pyspark_pykraft.py"))
    monkeypatch.setattr(session, "find_spec", lambda name: spec if name == "pyspark_pykraft" else None)
    session.make_discoverable()
    assert os.environ["PYTHONPATH"] == str(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"/other{os.pathsep}{tmp_path}")
    session.make_discoverable()
    session.make_discoverable()
    assert os.environ["PYTHONPATH"] == f"{tmp_path}{os.pathsep}/other"


def test_path_stays_as_it_is_if_spark_finds_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, ["os", "pyspark_pykraft"])
    session.make_discoverable()
    assert "PYTHONPATH" not in os.environ


@pytest.mark.parametrize("spec", [None, SimpleNamespace(origin=None)])
def test_source_that_is_not_installed_is_an_error(
    monkeypatch: pytest.MonkeyPatch, spec: SimpleNamespace | None
) -> None:
    listed(monkeypatch, ["os"])
    monkeypatch.setattr(session, "find_spec", lambda _: spec)
    with pytest.raises(RuntimeError, match="install pykraft with its extra 'spark'"):
        session.make_discoverable()


def test_sparks_python_is_this_one_unless_another_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, ["pyspark_pykraft"])
    session.prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/chosen")
    session.prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == "/chosen"


def java(directory: Path, version: str) -> None:
    (directory / "bin").mkdir(parents=True, exist_ok=True)
    made = directory / "bin" / "java"
    made.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024' >&2\n", encoding="utf-8")
    made.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "too_old"),
    [("1.8.0_402", "8"), ("11.0.2", "11"), ("16", "16"), ("17", None), ("17.0.9", None), ("21-ea", None)],
)
def test_java_must_be_new_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, too_old: str | None
) -> None:
    java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    expected = None if too_old is None else f"Spark needs Java 17 or newer, found {too_old}: install Java 17"
    problem = session.java_problem()
    assert problem == expected or (expected is not None and (problem or "").startswith(expected))
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/bin:/usr/bin")
    assert session.java_problem() == problem


def test_missing_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for home in (tmp_path, None):
        if home is not None:
            monkeypatch.setenv("JAVA_HOME", str(home))
        else:
            monkeypatch.delenv("JAVA_HOME")
        monkeypatch.setenv("PATH", str(tmp_path))
        assert (session.java_problem() or "").startswith("Spark needs Java, and none was found: install Java")
