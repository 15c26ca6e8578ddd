"""A wheel installs the same packages that run from a clone."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_package_is_in_the_wheel() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for path in ROOT.glob("[a-z]*/**/__init__.py")}
    shipped = {
        Path(),
        *(folder for folder in folders if folder.parts[0] not in ("build", "packaging", "tests")),
    }
    assert listed == sorted(".".join(("pykraft", *folder.parts)) for folder in shipped)


def test_sources_that_are_compiled_at_run_time_are_in_the_wheel() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        shipped = tomllib.load(file)["tool"]["setuptools"]["package-data"]
    sources = [path.name for path in (ROOT / "jepsen_like/faults/surroundings").glob("*.[ch]")]
    patterns = shipped["pykraft.jepsen_like.faults.surroundings"]
    assert sources and all(any(fnmatch(name, one) for one in patterns) for name in sources)
