"""The hosted CI: it runs what any machine runs, on the versions of Python that the package claims."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_matrix_has_the_oldest_python_and_all_that_are_claimed() -> None:
    matrix = JOBS["ci"]["strategy"]["matrix"]["python"]
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert f">={matrix[0]}" == PROJECT["requires-python"]
    assert set(claimed) <= set(matrix)
    assert matrix == [f"3.{minor}" for minor in range(11, 11 + len(matrix))]


@pytest.mark.parametrize(("job", "decides"), [("ci", ".ci/run"), ("long", "make test-long PYTHON=python")])
def test_one_command_decides(job: str, decides: str) -> None:
    commands = [step["run"] for step in JOBS[job]["steps"] if "run" in step]
    assert [command for command in commands if "apt-get" not in command] == [decides]


def test_actions_are_pinned_by_commit() -> None:
    used = [step["uses"] for job in JOBS.values() for step in job["steps"] if "uses" in step]
    assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in used)


def test_issue_forms_ask_for_something() -> None:
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"):
        asked = yaml.safe_load(form.read_text(encoding="utf-8"))
        assert asked["name"] and asked["description"] and any("id" in one for one in asked["body"]), form
