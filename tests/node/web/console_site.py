"""A console over a cluster of tests, and a client that asks for its pages."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import unescape
from io import BytesIO
from typing import Final, NamedTuple
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pykraft.kafka_client.loop_thread import LoopThread
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.node.web.console.app import Console
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.shown_node import PRODUCE, QuorumView
from pykraft.node.web.console.traffic import Counters
from pykraft.runtime.address import Address

FORM: Final = "application/x-www-form-urlencoded"


class StandIn:
    """The node of a console, without a node."""

    def __init__(self, bootstrap_servers: str, mode: str = PRODUCE, *, is_broker: bool = True) -> None:
        self.node_id = 1
        self.is_broker = is_broker
        self.mode = mode
        self.reason: str | None = None
        self.bootstrap_servers = bootstrap_servers

    def why_not_ready(self) -> str | None:
        return self.reason

    def servers(self) -> Sequence[Address]:
        return parse_bootstrap_servers(self.bootstrap_servers) if self.bootstrap_servers else ()

    def quorum(self) -> QuorumView | None:
        return QuorumView(None, 7, 100, 101)

    def counters(self) -> Counters | None:
        return Counters(0, 0, 0, 0)

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Answer(NamedTuple):
    status: int
    text: str
    location: str

    @property
    def words(self) -> str:
        """What a reader sees, between single spaces."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.text)).split())


class Site:
    """Asks on the loop that serves."""

    def __init__(self, thread: LoopThread, client: TestClient[web.Request, web.Application]) -> None:
        self._thread = thread
        self._client = client

    def get(self, path: str, **query: object) -> Answer:
        return self._thread.run(
            self._ask("GET", path, {key.rstrip("_"): str(it) for key, it in query.items()})
        )

    def post(self, path: str, form: Mapping[str, str], content_type: str = FORM) -> Answer:
        body = BytesIO(urlencode(form).encode())
        return self._thread.run(self._ask("POST", path, {}, body, {"Content-Type": content_type}))

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: BytesIO | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        async with self._client.request(
            method, path, params=query, data=body, headers=headers, allow_redirects=False
        ) as response:
            return Answer(response.status, await response.text(), response.headers.get("Location", ""))


@contextmanager
def console(node: StandIn, limits: CallLimits | None = None) -> Iterator[Site]:
    async def start() -> TestClient[web.Request, web.Application]:
        app = web.Application(client_max_size=2 << 20)
        Console(node, limits).add_to(app)
        client = TestClient(TestServer(app))
        await client.start_server()
        return client

    with LoopThread("site") as thread:
        client = thread.run(start())
        try:
            yield Site(thread, client)
        finally:
            thread.run(client.close())
