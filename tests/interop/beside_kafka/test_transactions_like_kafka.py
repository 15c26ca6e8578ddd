"""The same random scripts of raw transactional requests against this broker and Apache Kafka: answers agree.

``make transactions-differential SEEDS=…`` plays more of them.
"""

from collections.abc import Iterator

import pytest

from pykraft.jepsen_like.conformance.compare import Comparison
from pykraft.jepsen_like.conformance.draw import Versions
from pykraft.jepsen_like.conformance.driver import both_systems, served_by_both
from pykraft.jepsen_like.conformance.generate_transactions import generate_transactions
from pykraft.jepsen_like.conformance.transactions_driver import ALL_KNOWN, PROPERTIES, prepare
from pykraft.testing.processes.systems import Kafka
from tests.interop.java_jars import fetch_server

SEEDS = range(1, 21)

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Comparison, Versions]]:
    jars = fetch_server("TRANSACTIONS LIKE KAFKA")
    directory = tmp_path_factory.mktemp("both")
    with both_systems(directory, Kafka(jars), PROPERTIES, prepare) as (ours, kafka):
        yield Comparison(ours, kafka, ALL_KNOWN), served_by_both(ours, kafka)


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_are_those_of_kafka(both: tuple[Comparison, Versions], seed: int) -> None:
    comparison, versions = both
    script = generate_transactions(seed, versions)
    difference = comparison.find(script)
    assert difference is None, f"{script}\n{difference}"
