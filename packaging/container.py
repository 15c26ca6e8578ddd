"""The container's program: properties from the environment, a formatted data directory, then the node.

A variable ``KAFKA_X_Y`` is the property ``x.y``, as in Apache Kafka's image (KIP-975); ``__`` stands for
``_`` and ``___`` for ``-``. ``CLUSTER_ID`` is the cluster's id. Without any of them the container is a
cluster of one node. The process of this program becomes the node, so that it gets the container's signals.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pykraft.configuration.properties import format_properties

PREFIX: Final = "KAFKA_"
DATA: Final = "/var/lib/pykraft"
PROPERTIES_FILE: Final = "server.properties"
CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"
"""Of a cluster that is given no other: what one node is used for alone needs none of its own."""
DEFAULTS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": DATA,
    "pykraft.http.listener": "127.0.0.1:9464",
}
"""The last one is for the health check, in the container only."""
ALONE: Final[Mapping[str, str]] = {
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Besides, for a node that is the only voter."""
OF_JAVA: Final = re.compile(r"KAFKA_(\w*OPTS|JMX_\w+|(TOOLS_)?LOG4J_\w+)")
"""Variables that tell Apache Kafka's image what a Java virtual machine is to do."""


def node_of(environment: Mapping[str, str]) -> tuple[dict[str, str], Sequence[str]]:
    """Return the lines of ``server.properties``, and the voters' options for formatting.

    A controller is given a list of all voters, or somebody to ask for them, or is the only one.
    """
    names = (name for name in environment if name.startswith(PREFIX) and not OF_JAVA.fullmatch(name))
    given = {property_of(name): environment[name] for name in names}
    properties = {**DEFAULTS, **given}
    if "controller" not in properties["process.roles"] or "controller.quorum.voters" in given:
        return properties, ()
    if "controller.quorum.bootstrap.servers" in given:
        return properties, ("--no-initial-controllers",)
    return {**ALONE, **properties}, ("--standalone",)


def property_of(variable: str) -> str:
    name = variable.removeprefix(PREFIX).lower()
    for written, meant in (("___", "\0"), ("__", "\1"), ("_", "."), ("\1", "_"), ("\0", "-")):
        name = name.replace(written, meant)
    return name


def main() -> None:
    directory = Path(os.environ.get("PYKRAFT_CONTAINER_DIRECTORY", "/run/pykraft"))
    file = directory / PROPERTIES_FILE
    properties, voters = node_of(os.environ)
    file.write_text(format_properties(properties), encoding="utf-8")
    command = ["pykraft", "storage", "format", "--ignore-formatted", "--config", str(file), *voters]
    cluster_id = os.environ.get("CLUSTER_ID", CLUSTER_ID)
    formatted = subprocess.run([*command, "--cluster-id", cluster_id], check=False)
    if formatted.returncode:
        sys.exit(formatted.returncode)
    os.execvp("pykraft", ["pykraft", "server", "start", str(file), *sys.argv[1:]])


if __name__ == "__main__":
    main()
