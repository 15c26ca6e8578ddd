"""Pages of the site that are tables in the code: the faults of fault runs, and the differences from Kafka."""

from __future__ import annotations

from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from pykraft.jepsen_like.conformance.known.groups import KNOWN
from pykraft.jepsen_like.conformance.known.transactions import KNOWN_TRANSACTIONS
from pykraft.jepsen_like.faults.checkers.findings import MEANING, Anomaly
from pykraft.jepsen_like.faults.nemeses.choice import KINDS

FAULTS: Final = """\
# Faults and anomalies

What [fault runs](../fault-runs.md) can break, and what they look for; `pykraft jepsen list` prints the same.

| family | fault | what happens |
|---|---|---|
"""
ANOMALIES: Final = """\

## Anomalies

| anomaly | means |
|---|---|
"""
DIFFERENCES: Final = """\
# Differences from Apache Kafka 4.3

The intended ones, which comparisons of [groups](../groups.md#differences-from-apache-kafka-43) and of
[transactions](../transactions.md#differences-from-apache-kafka-43) know.

| | here, and why |
|---|---|
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    faults = (f"| {kind.family} | `{kind.name}` | {kind.does} |\n" for kind in KINDS.values())
    anomalies = (f"| `{anomaly}` | {MEANING[anomaly]} |\n" for anomaly in Anomaly)
    known = (f"| {it.name} | {it.reason} |\n" for it in (*KNOWN, *KNOWN_TRANSACTIONS))
    found = "".join([FAULTS, *faults, ANOMALIES, *anomalies])
    files.append(File.generated(config, "reference/faults.md", content=found))
    files.append(File.generated(config, "reference/differences.md", content=DIFFERENCES + "".join(known)))
    return files
