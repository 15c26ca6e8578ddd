"""The table of tested clients is what a run of their tests has shown, and what it names still exists."""

import re

import pytest

from tests.interop.clients import CLIENTS, FEATURES
from tests.interop.shown_features import HERE, HOW, PAGE, ClientResult, Shown, current_page, published, render


def test_published_table_comes_from_the_published_results() -> None:
    assert PAGE.read_text("utf-8") == current_page(), HOW


def test_every_client_is_published_in_the_version_that_is_asked_for() -> None:
    assert [client.name for client in published()] == list(CLIENTS)
    for client in published():
        assert client.language == CLIENTS[client.name].language
        if CLIENTS[client.name].pinned:
            assert client.version == CLIENTS[client.name].version(), HOW


def test_published_features_are_known_and_their_tests_exist() -> None:
    for client in published():
        assert set(client.features) <= set(FEATURES) - CLIENTS[client.name].lacks
        for test in (test for tests in client.features.values() for test in tests):
            file, name = re.fullmatch(r"([\w/]+\.py)::(\w+)(?:\[.*\])?", test).groups()  # type: ignore[union-attr]
            text = (HERE / file).read_text("utf-8")
            assert re.search(rf"^(?:async )?def {name}\(", text, re.M), test


@pytest.mark.parametrize(
    ("outcomes", "is_shown"),
    [
        ({"one": True}, True),
        ({"one": True, "other": True}, True),
        ({"one": True, "other": False}, False),
        ({}, False),
    ],
)
def test_feature_is_shown_if_all_of_its_tests_passed(outcomes: dict[str, bool], is_shown: bool) -> None:
    tested = Shown({("kafka-clients", "idempotence"): outcomes}).tested()
    assert [client.features for client in tested] == [{"idempotence": sorted(outcomes)}] * is_shown


def test_table_tells_what_is_missing_from_what_is_not_tested() -> None:
    rows = render(
        [ClientResult("rskafka", "Rust", "1.0", {"produce": [], "none": [], "lz4": [], "assign": []})]
    )
    assert rows.splitlines()[2:] == ["| rskafka | 1.0 | Rust | yes: lz4 | yes | - | - | - | - |  |"]
