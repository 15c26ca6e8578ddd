"""Which form of the package runs: compiled modules are used if they are those of the sources, all or none."""

import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from pykraft import compiled

SOURCE = b"LIMIT = 5\n"


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Of a build in ``tmp_path``, to be changed and written by the test."""
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(compiled, "MANIFEST", tmp_path / "compiled.json")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delenv(compiled.ASKED, raising=False)
    (tmp_path / "log.py").write_bytes(SOURCE)
    (tmp_path / "library.so").write_bytes(b"")
    time_ns = (tmp_path / "log.py").stat().st_mtime_ns
    return {
        "python": sys.implementation.cache_tag,
        "library": "library.so",
        "modules": {},
        "sources": {"log.py": [len(SOURCE), zlib.crc32(SOURCE), time_ns]},
    }


def why_interpreted(manifest: dict[str, Any]) -> str | None:
    compiled.MANIFEST.write_text(json.dumps(manifest))
    before = list(sys.meta_path)
    found = compiled._use()
    assert sys.meta_path == before, "nothing is compiled of what was found"
    return found


@pytest.mark.usefixtures("manifest")
def test_no_build() -> None:
    assert compiled._use() == "not compiled"


def test_build_for_another_python(manifest: dict[str, Any]) -> None:
    manifest["python"] = "cpython-27"
    assert why_interpreted(manifest) == "compiled for cpython-27"


def test_build_whose_library_is_gone(manifest: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "library.so").unlink()
    assert why_interpreted(manifest) == f"compiled for {sys.implementation.cache_tag}"


def test_interpreted_is_asked_for(manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.ASKED, "1")
    assert why_interpreted(manifest) == "PYKRAFT_INTERPRETED is set"


@pytest.mark.parametrize("changed", [b"LIMIT = 6\n", b"LIMIT = 50\n", None])
def test_source_that_was_changed_is_named(
    manifest: dict[str, Any], tmp_path: Path, changed: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if changed is None:
        (tmp_path / "log.py").unlink()
    else:
        (tmp_path / "log.py").write_bytes(changed)
        os.utime(tmp_path / "log.py", ns=(1, 1))
    assert why_interpreted(manifest) == "log.py has changed since it was compiled"
    assert "pykraft runs interpreted: log.py has changed" in capsys.readouterr().err


def test_source_of_another_size_is_another_whatever_its_time(
    manifest: dict[str, Any], tmp_path: Path
) -> None:
    _, _, time_ns = manifest["sources"]["log.py"]
    (tmp_path / "log.py").write_bytes(SOURCE * 2)
    os.utime(tmp_path / "log.py", ns=(time_ns, time_ns))
    assert compiled._changed(manifest["sources"], tmp_path / "library.so") == "log.py"


def test_source_that_was_only_touched_is_what_was_compiled(manifest: dict[str, Any], tmp_path: Path) -> None:
    os.utime(tmp_path / "log.py", ns=(1, 1))
    assert compiled._changed(manifest["sources"], tmp_path / "library.so") is None


def test_source_of_an_installed_package_that_is_edited_later(
    manifest: dict[str, Any], tmp_path: Path
) -> None:
    size_bytes, crc, _ = manifest["sources"]["log.py"]
    installed = {"log.py": [size_bytes, crc, 0]}
    assert compiled._changed(installed, tmp_path / "library.so") is None
    (tmp_path / "log.py").write_bytes(b"LIMIT = 7\n")
    later_ns = (tmp_path / "library.so").stat().st_mtime_ns + 3600 * 10**9
    os.utime(tmp_path / "log.py", ns=(later_ns, later_ns))
    assert compiled._changed(installed, tmp_path / "library.so") == "log.py"
