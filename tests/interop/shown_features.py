"""Which client does what: said by the marks of tests, published as far as a run has shown it.

``@pytest.mark.shows(client, *features)`` says what is shown when the test passes; the names of features may
contain the test's parameters in braces. A run of all these tests with ``PYKRAFT_WRITE_CLIENTS=1`` writes
``docs/clients_tested.json`` and the table in ``docs/clients.md``: a feature counts if all of its tests
passed. In every other run a test fails if its marks say anything else than that file.
"""

import datetime
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from comparison.table import replace_between_markers

from tests.interop.clients import CLIENTS, CODECS, FEATURES

HERE: Final = Path(__file__).parent
DOCS: Final = HERE.parents[1] / "docs"
FIGURES: Final = DOCS / "clients_tested.json"
PAGE: Final = DOCS / "clients.md"
WRITE: Final = "PYKRAFT_WRITE_CLIENTS"
HOW: Final = f"{WRITE}=1 pytest -n 0 -m shows tests/interop"
BEGIN: Final = f"<!-- Begin of what `{HOW}` writes -->"
END: Final = f"<!-- End of what `{HOW}` writes -->"

Claim = tuple[str, str]
"""A client and one of its features."""


@dataclass(frozen=True)
class ClientResult:
    """What a run has shown of one client: its features, and the tests of each."""

    name: str
    language: str
    version: str
    features: Mapping[str, list[str]]


@dataclass
class Shown:
    """What became of the tests of each claim in this run."""

    passed: dict[Claim, dict[str, bool]] = field(default_factory=dict)

    def note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """One phase of one test. It has shown nothing unless all of its phases passed."""
        for claim in claims_of(item):
            tests = self.passed.setdefault(claim, {})
            tests[name_of(item)] = report.passed and tests.get(name_of(item), True)

    def tested(self) -> list[ClientResult]:
        """All clients of which something was shown; the order is that of :data:`CLIENTS`."""
        found = []
        for client in CLIENTS.values():
            outcomes = {feature: self.passed.get((client.name, feature), {}) for feature in FEATURES}
            shown = {name: sorted(tests) for name, tests in outcomes.items() if tests and all(tests.values())}
            if shown:
                found.append(ClientResult(client.name, client.language, client.version(), shown))
        return found

    def write(self) -> None:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        content = {"date": date, "clients": [asdict(client) for client in self.tested()]}
        FIGURES.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        published.cache_clear()
        PAGE.write_text(current_page(), "utf-8")


def is_writing() -> bool:
    return bool(os.environ.get(WRITE))


def name_of(item: pytest.Item) -> str:
    """File and test, with its parameters."""
    return f"{item.path.relative_to(HERE)}::{item.nodeid.partition('::')[2]}"


def claims_of(item: pytest.Item) -> set[Claim]:
    """What its marks say."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    words = {name: "none" if value is None else value for name, value in parameters.items()}
    return {
        (mark.args[0], feature.format(**words))
        for mark in item.iter_markers("shows")
        for feature in mark.args[1:]
    }


@cache
def published() -> list[ClientResult]:
    if not FIGURES.exists():
        return []
    return [ClientResult(**client) for client in json.loads(FIGURES.read_text("utf-8"))["clients"]]


def check(item: pytest.Item) -> None:
    """That its marks make sense, and that the file says the same of it.

    Of a client that is not pinned a test may show more: what it can do depends on what is installed.
    """
    claims = claims_of(item)
    for client, feature in claims:
        assert feature in FEATURES and feature not in CLIENTS[client].lacks, f"{client}: {feature}"
    if is_writing():
        return
    listed = listed_of(name_of(item))
    more = {claim for claim in claims - listed if CLIENTS[claim[0]].pinned}
    assert not more and listed <= claims, f"{FIGURES.name} says something else of this test: {HOW}"


def listed_of(test: str) -> set[Claim]:
    """What the file says that a test has shown."""
    return {
        (client.name, feature)
        for client in published()
        for feature, tests in client.features.items()
        if test in tests
    }


def current_page() -> str:
    return replace_between_markers(PAGE.read_text("utf-8"), render(published()), BEGIN, END)


COLUMNS: Final = ("assign", "classic group", "consumer group", "idempotence", "transactions", "admin")


def render(clients: Iterable[ClientResult]) -> str:
    """The table: ``yes`` where tests passed, ``-`` where a client has no such thing, else empty."""
    rows = [
        ("client", "version", "language", "produce, with codecs", *COLUMNS),
        ("---",) * (4 + len(COLUMNS)),
        *(_row(client) for client in clients),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(client: ClientResult) -> tuple[str, ...]:
    def cell(feature: str) -> str:
        return "yes" if feature in client.features else "-" if feature in CLIENTS[client.name].lacks else ""

    codecs = ", ".join(codec for codec in CODECS if codec in client.features)
    written = f"yes: {codecs}" if codecs else cell("produce")
    return client.name, client.version, client.language, written, *map(cell, COLUMNS)
