"""Every client that the tests drive: its language, its version, and what it does not have at all."""

import re
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version as installed_version
from itertools import product
from typing import Final

import pytest

from tests.interop.built_programs import GO_CLIENTS, RUST_CLIENTS
from tests.interop.java_jars import CLIENTS_VERSION
from tests.interop.node_packages import PACKAGES

CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
FEATURES: Final = (
    "produce",
    "none",
    *CODECS,
    "assign",
    "classic group",
    "consumer group",
    "idempotence",
    "transactions",
    "admin",
)
"""``none`` is a codec, too. ``assign``: it reads partitions without a group, from their beginning.
``consumer group``: the protocol of KIP-848. ``admin``: it creates, describes or lists, and deletes topics.
"""


@dataclass(frozen=True)
class Client:
    """``version``: of what is installed, or of what this repository asks for (``pinned``)."""

    name: str
    language: str
    version: Callable[[], str]
    pinned: bool = True
    lacks: frozenset[str] = frozenset()
    """Features that the client does not have."""


def _go_version(module: str) -> str:
    manifest = (GO_CLIENTS.directory / "go.mod").read_text("utf-8")
    found = re.search(rf"^\t{re.escape(module)} v(\S+)$", manifest, re.M)
    assert found is not None, module
    return found[1]


def _rust_version(crate: str) -> str:
    lock = tomllib.loads((RUST_CLIENTS.directory / "Cargo.lock").read_text("utf-8"))
    (found,) = (package["version"] for package in lock["package"] if package["name"] == crate)
    return str(found)


def _node_version(package: str) -> str:
    return dict(item.rsplit("@", 1) for item in PACKAGES)[package]


def _kcat_version() -> str:
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(r"Version (\S+)", said)
    assert found is not None, said
    return found[1]


def _in_python(name: str, *lacks: str) -> Client:
    return Client(name, "Python", partial(installed_version, name), pinned=False, lacks=frozenset(lacks))


def _in_node(name: str, *lacks: str) -> Client:
    return Client(name, "JavaScript", partial(_node_version, name), lacks=frozenset(lacks))


def _in_go(name: str, module: str, *lacks: str) -> Client:
    return Client(name, "Go", partial(_go_version, module), lacks=frozenset(lacks))


def _in_rust(name: str, *lacks: str) -> Client:
    return Client(name, "Rust", partial(_rust_version, name), lacks=frozenset(lacks))


CLIENTS: Final = {
    client.name: client
    for client in (
        Client("kafka-clients", "Java", lambda: CLIENTS_VERSION),
        _in_python("confluent-kafka"),
        _in_python("aiokafka", "consumer group"),
        _in_python("kafka-python", "consumer group"),
        Client("kcat", "C", _kcat_version, pinned=False, lacks=frozenset({"admin"})),
        _in_node("kafkajs", "assign", "consumer group"),
        _in_node("@platformatic/kafka"),
        _in_go("sarama", "github.com/IBM/sarama", "consumer group"),
        _in_go("kafka-go", "github.com/segmentio/kafka-go", "consumer group", "idempotence", "transactions"),
        _in_go("franz-go", "github.com/twmb/franz-go"),
        _in_rust("rskafka", "classic group", "consumer group", "idempotence", "transactions"),
        _in_rust("krafka"),
    )
}
PROGRAMS: Final = {
    client.name: program
    for client in CLIENTS.values()
    if (program := {"Go": GO_CLIENTS, "Rust": RUST_CLIENTS}.get(client.language)) is not None
}
"""Of the clients that take orders as processes (client_program.py)."""
ORDERED: Final = tuple(
    client.name for client in CLIENTS.values() if client.language == "Python" or client.name in PROGRAMS
)
"""All that take orders: those for Python in the process of the test (python_clients.py)."""


def each_program(*features: str, **values: Sequence[str]) -> pytest.MarkDecorator:
    """A test of its own for each client that takes orders, and for each of the parameter's values.

    The test shows these features, whose names may contain the parameter in braces; a client that lacks one of
    them is left out.
    """
    choices = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    return pytest.mark.parametrize(
        ("name", *values),
        [
            pytest.param(name, *choice.values(), marks=pytest.mark.shows(name, *features))
            for name in ORDERED
            for choice in choices
            if CLIENTS[name].lacks.isdisjoint(feature.format(**choice) for feature in features)
        ],
    )
