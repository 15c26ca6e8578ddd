"""The same random scripts of raw group requests against this broker and Apache Kafka: the answers agree.

``make groups-differential SEEDS=…`` plays more of them.
"""

from collections.abc import Iterator

import pytest

from pykraft.jepsen_like.conformance.compare import Comparison
from pykraft.jepsen_like.conformance.draw import Versions
from pykraft.jepsen_like.conformance.driver import both_systems, served_by_both
from pykraft.jepsen_like.conformance.generate import Choice, generate
from pykraft.jepsen_like.conformance.groups_driver import PROPERTIES, prepare
from pykraft.jepsen_like.conformance.known.groups import KNOWN
from pykraft.testing.processes.systems import Kafka
from tests.interop.java_jars import fetch_server

SEEDS = range(1, 31)

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Comparison, Versions]]:
    jars = fetch_server("GROUPS LIKE KAFKA")
    directory = tmp_path_factory.mktemp("both")
    with both_systems(directory, Kafka(jars), PROPERTIES, prepare) as (ours, kafka):
        yield Comparison(ours, kafka, KNOWN), served_by_both(ours, kafka)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "choice", [Choice(consumer=False), Choice(mixed=True, regex=True)], ids=["classic", "both-protocols"]
)
def test_answers_are_those_of_kafka(both: tuple[Comparison, Versions], choice: Choice, seed: int) -> None:
    comparison, versions = both
    script = generate(seed, versions, choice)
    difference = comparison.find(script)
    assert difference is None, f"{script}\n{difference}"
