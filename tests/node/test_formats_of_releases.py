"""Files that each release has written are opened by this code: see docs/how-to/upgrade.md.

``tests/data/formats`` has a data directory and what its node served for each release, and the script that
makes them. A failure here means that a user who upgrades loses something: repair the code, not the files.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pykraft import __version__
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.producer.transaction import TransactionConfig
from pykraft.log_store.checkpoint import CLEAN_SHUTDOWN
from tests.data.formats.contents import Json, metadata_in, served_by
from tests.data.formats.serving import serving

FORMATS = Path(__file__).resolve().parents[1] / "data" / "formats"
RELEASES = sorted(path.parent for path in FORMATS.glob("*/expected.json"))


def differences(expected: Any, found: Any, at: str = "") -> list[str]:
    """Where ``found`` lacks what is expected. Fields that a later release has added may be there as well."""
    if isinstance(expected, dict) and isinstance(found, dict):
        missing = [f"{at}/{key} is missing" for key in expected if key not in found]
        common = [key for key in expected if key in found]
        return missing + [
            line for key in common for line in differences(expected[key], found[key], f"{at}/{key}")
        ]
    return [] if found == expected else [f"{at}: {expected} expected, {found} found"]


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def expected(release: Path) -> Json:
    read: Json = json.loads((release / "expected.json").read_text(encoding="utf-8"))
    return read


@pytest.fixture
def data(release: Path, tmp_path: Path) -> Path:
    """A copy of the data directory, as it was when its node had stopped in order."""
    return Path(shutil.copytree(release / "data", tmp_path / "data"))


def test_metadata_are_read_as_they_were(data: Path, expected: Json) -> None:
    assert differences(expected["metadata"], metadata_in(data)) == []


@pytest.mark.parametrize("stopped", ["in order", "killed"])
def test_node_serves_all_that_it_served(data: Path, expected: Json, stopped: str) -> None:
    if stopped == "killed":
        (data / CLEAN_SHUTDOWN).unlink()
    made_at_ms = expected.pop("made_at_ms")
    del expected["metadata"]
    with serving(data, made_at_ms) as server:
        assert differences(expected, served_by(server)) == []


def test_node_goes_on_where_it_stopped(data: Path, expected: Json) -> None:
    """The next record is appended, the producer of the open transaction is fenced, and both are kept."""
    for number in range(2):
        with serving(data, expected["made_at_ms"]) as server:
            client = ClientConfig(parse_bootstrap_servers(server))
            with BlockingProducer(client, transaction=TransactionConfig("open")) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                written = producer.send("plain", 0, None, b"after the upgrade")
                producer.commit_transaction()
                # Between the two: the marker of the transaction before.
                assert written.result(0).offset == expected["end offsets"]["plain-0"] + 2 * number
            found = served_by(server)
            assert len(found["records"]["plain-0"]) == len(expected["records"]["plain-0"]) + number + 1
            assert found["end offsets"]["transactions-0"] == expected["end offsets"]["transactions-0"] + 1


def test_this_series_of_releases_has_its_files() -> None:
    series = ".".join(__version__.split(".")[:2])
    assert series in {path.name for path in RELEASES}, (
        f"make them: python -m tests.data.formats.make {series}"
    )
