"""When ``pip install`` compiles, and what it says where it does not."""

import shutil
import sysconfig
from pathlib import Path

import pytest
from compiling.commands import why_not


@pytest.fixture(autouse=True)
def whole_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with a C compiler and the headers of Python."""
    (tmp_path / "Python.h").touch()
    monkeypatch.delenv("PYKRAFT_INTERPRETED", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")


def test_it_compiles_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not() is None
    monkeypatch.setenv("PYKRAFT_INTERPRETED", "0")
    assert why_not() is None


def test_interpreted_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKRAFT_INTERPRETED", "1")
    assert why_not() == "PYKRAFT_INTERPRETED is set"


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert (why_not() or "").startswith("there is no C compiler")


def test_no_header(tmp_path: Path) -> None:
    (tmp_path / "Python.h").unlink()
    assert why_not() == f"{tmp_path}/Python.h is missing (Debian: apt-get install python3-dev)"
