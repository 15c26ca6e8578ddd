"""Two clients of Node.js: kafkajs, which sends the oldest versions, and @platformatic/kafka, the newest.

They are installed once into the user's cache directory; without Node.js 20, npm or the registry the tests are
skipped with a message.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pykraft.jepsen_like.process_cluster import ProcessCluster

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
PACKAGES = ("kafkajs@2.2.4", "@platformatic/kafka@1.35.0")
INSTALL_TIMEOUT_S = 60
RUN_TIMEOUT_S = 60


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "pykraft-interop"


@pytest.fixture(scope="module")
def node_modules() -> Path:
    """A node_modules directory with both clients."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("NODE CLIENTS NOT TESTED: node or npm is not installed")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=20, check=True)
    if int(version.stdout.strip().lstrip("v").split(".")[0]) < 20:
        pytest.skip(f"NODE CLIENTS NOT TESTED: node {version.stdout.strip()} is older than 20")
    name = "npm-" + "-".join(package.rpartition("@")[2] for package in PACKAGES)
    installed = cache_dir() / name
    if not installed.exists():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir()) as directory:
            fresh = Path(directory) / "fresh"
            fresh.mkdir()
            command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(fresh), *PACKAGES]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False, cwd=fresh
                )
            except subprocess.TimeoutExpired:
                pytest.skip(f"NODE CLIENTS NOT TESTED: npm install took more than {INSTALL_TIMEOUT_S} s")
            if done.returncode != 0:
                pytest.skip(f"NODE CLIENTS NOT TESTED: npm install failed: {done.stderr[-500:]}")
            fresh.rename(installed)
    return installed / "node_modules"


@pytest.fixture
def run_script(node_modules: Path, tmp_path: Path) -> Callable[..., dict[str, object]]:
    """Run one of the scripts next to this file, where it finds the packages; returns its output."""
    (tmp_path / "node_modules").symlink_to(node_modules)

    def run(script: str, *arguments: str) -> dict[str, object]:
        copy = shutil.copy(Path(__file__).with_name(script), tmp_path)
        done = subprocess.run(
            ["node", str(copy), *arguments],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        seen: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return seen

    return run


def test_kafkajs_produces_consumes_in_a_group_and_administers(
    trio: ProcessCluster, fresh: Fresh, run_script: Callable[..., dict[str, object]]
) -> None:
    seen = run_script("kafkajs_client.mjs", trio.bootstrap_servers, fresh("kafkajs"), fresh("group"))
    assert seen == {
        "brokers": [1, 2, 3],
        "created": True,
        "values": 60,
        "members": 2,
        "committed": 60,
        "latest": 60,
    }


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_platformatic_produces_consumes_in_a_group_and_administers(
    trio: ProcessCluster, fresh: Fresh, run_script: Callable[..., dict[str, object]], protocol: str
) -> None:
    topic = fresh("platformatic")
    seen = run_script("platformatic_client.mjs", trio.bootstrap_servers, topic, fresh("group"), protocol)
    assert seen == {
        "created": topic,
        "brokers": [1, 2, 3],
        "partitions": 4,
        "values": 60,
        "committed": 60,
        "latest": 60,
        "listed": True,
    }
