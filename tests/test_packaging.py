"""A wheel installs the same packages that run from a clone."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_package_is_in_the_wheel() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for path in ROOT.glob("[a-z]*/**/__init__.py")}
    shipped = {Path(), *(folder for folder in folders if folder.parts[0] not in ("build", "tests"))}
    assert listed == sorted(".".join(("pykraft", *folder.parts)) for folder in shipped)
