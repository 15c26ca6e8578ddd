"""The console as a node serves it: what its configuration allows, and what browsers are told."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from pykraft.metadata_log.records import Endpoint
from pykraft.node.config import load_server_config
from pykraft.node.web.console.shown_node import OwnNode
from pykraft.node.web.server import WebServer
from pykraft.runtime.address import Address
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

CONTROLLER = """\
process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
log.dirs=/nowhere
"""


class Client:
    def __init__(self, address: str) -> None:
        self._host = address.rpartition("/")[2]

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection(self._host, timeout=PATIENCE_S)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def serves(self) -> bool:
        try:
            return self.ask("/readyz")[0] == 200
        except OSError:
            return False


@contextmanager
def served(**properties: str) -> Iterator[Client]:
    named = {f"pykraft.http.{name}": value for name, value in properties.items()}
    with Cluster(http=True, properties=named) as cluster:
        client = Client(cluster.http_addresses[1])
        wait_until("it serves", client.serves, PATIENCE_S)
        yield client


def test_console_is_read_only_by_default_and_shows_the_node() -> None:
    with served() as client:
        status, text, headers = client.ask("/console")
        assert status == 200 and "the controller is node 1" in text and "may produce" not in text
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
        for name in ("console.css", "console.js", "icon.svg"):
            assert f"/console/static/{name}" in text and client.ask(f"/console/static/{name}")[0] == 200
        for method in ("GET", "POST"):
            assert client.ask("/console/topics/any/produce", method)[0] == 403
        quorum = client.ask("/console/quorum")[1]
        assert "leader that it follows or is" in quorum and "has not opened" not in quorum

        def has_samples() -> bool:
            client.ask(
                "/console/topics"
            )  # asks the broker: there may be no other request between two samples
            rates = json.loads(client.ask("/console/traffic.json")[1])
            return any(count > 0 for count in rates["requests"])

        wait_until("requests are counted", has_samples, PATIENCE_S)


def test_console_can_be_switched_off() -> None:
    with served(console="off") as client:
        assert client.ask("/console")[0] == 404 and client.ask("/")[0] == 404
        assert client.ask("/healthz")[0] == 200


@pytest.mark.parametrize("clients", ["", "KAFKA_CONTROLLER"])
def test_controller_is_asked_at_the_listener_for_clients_of_every_controller(clients: str) -> None:
    def registered(number: int) -> SimpleNamespace:
        names = ("CONTROLLER", "KAFKA_CONTROLLER")
        return SimpleNamespace(
            endpoints=[Endpoint(name, f"host{number}", 9000 + place) for place, name in enumerate(names)]
        )

    names = ["CONTROLLER", *filter(None, [clients])]
    listeners = ",".join(f"{name}://127.0.0.1:{9093 + place}" for place, name in enumerate(names))
    given = {"listeners": listeners, "controller.listener.names": ",".join(names)}
    image = SimpleNamespace(controllers={1: registered(1), 2: registered(2)})
    node = SimpleNamespace(
        config=load_server_config(CONTROLLER, given),
        broker=None,
        controller=SimpleNamespace(committed_image=image),
    )
    own = OwnNode(cast(WebServer, SimpleNamespace(node=node, now_ms=int, wall_ms=int)))
    assert not own.is_broker and own.counters() is None and own.quorum() is None
    assert list(own.servers()) == ([Address("host1", 9001), Address("host2", 9001)] if clients else [])
