"""Two clients of Node.js: kafkajs, which sends the oldest versions, and @platformatic/kafka, the newest.

Without Node.js, npm or the registry the tests are skipped with a message (node_packages.py).
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pykraft.testing import Cluster
from tests.interop.node_packages import node_packages

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
RUN_TIMEOUT_S = 60


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., dict[str, object]]:
    """Run one of the scripts next to this file, where it finds the packages; returns its output."""
    packages = node_packages()

    def run(script: str, *arguments: str) -> dict[str, object]:
        done = subprocess.run(
            [*packages.copy(script, tmp_path), *arguments],
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


@pytest.mark.shows("kafkajs", "produce", "gzip", "classic group", "idempotence", "admin")
def test_kafkajs_produces_consumes_in_a_group_and_administers(
    trio: Cluster, fresh: Fresh, run_script: Callable[..., dict[str, object]]
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


@pytest.mark.shows("kafkajs", "transactions")
def test_transactions_of_kafkajs_commit_abort_carry_offsets_and_are_fenced(
    trio: Cluster, new_topic: Callable[..., str], run_script: Callable[..., dict[str, object]]
) -> None:
    seen = run_script("kafkajs_transactions.mjs", trio.bootstrap_servers, new_topic(), new_topic())
    assert seen == {
        "committed": ["0", "2", "4"],
        "everything": ["0", "1", "2", "3", "4"],
        "offsets": [False, True],
        "processed": ["after false", "0 true", "2 true", "4 true", "after true"],
        "fenced": "INVALID_PRODUCER_EPOCH",
        "left": ["after true", "new"],
    }


@pytest.mark.shows("@platformatic/kafka", "produce", "gzip", "{protocol} group", "idempotence", "admin")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_platformatic_produces_consumes_in_a_group_and_administers(
    trio: Cluster, fresh: Fresh, run_script: Callable[..., dict[str, object]], protocol: str
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
