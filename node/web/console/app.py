"""The paths of the console: who may ask for what, what is asked of the cluster for it, and the answer.

A page is answered with the status that fits it, and never takes longer than its limit, whatever state the
cluster is in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from aiohttp import web
from aiohttp.typedefs import Handler

from pykraft.kafka_client.admin.client import Admin
from pykraft.node.web.console.broker_pages import BrokerPage, BrokersPage, OverviewPage
from pykraft.node.web.console.cluster_calls import CallLimits, ClusterCalls
from pykraft.node.web.console.group_pages import GroupPage, GroupsPage
from pykraft.node.web.console.page import (
    CONTROLLER_ONLY,
    EXPECTED,
    NO_FORM,
    NO_PAGE,
    NO_PRODUCING,
    Failure,
    NotReadyError,
    Page,
    failure_of,
)
from pykraft.node.web.console.parameters import BadParameterError, Parameters
from pykraft.node.web.console.produce_page import ProducePage, parse_record, write
from pykraft.node.web.console.quorum_page import QuorumPage
from pykraft.node.web.console.records_page import RecordsPage
from pykraft.node.web.console.shown_node import PRODUCE, ShownNode
from pykraft.node.web.console.templating import render
from pykraft.node.web.console.topic_pages import TopicPage, TopicsPage
from pykraft.node.web.console.traffic import TrafficSamples

T = TypeVar("T")

HOME: Final = OverviewPage.TAB
_TOPIC: Final = f"{HOME}/topics/{{topic}}"
_PAGES: Final[Mapping[str, type[Page]]] = {
    HOME: OverviewPage,
    f"{HOME}/topics": TopicsPage,
    _TOPIC: TopicPage,
    f"{_TOPIC}/records": RecordsPage,
    f"{HOME}/groups": GroupsPage,
    f"{HOME}/group": GroupPage,
    f"{HOME}/brokers": BrokersPage,
    f"{HOME}/brokers/{{broker}}": BrokerPage,
    f"{HOME}/quorum": QuorumPage,
}
_TABS: Final = (
    (OverviewPage, "Overview"),
    (TopicsPage, "Topics"),
    (GroupsPage, "Groups"),
    (BrokersPage, "Brokers"),
    (QuorumPage, "Quorum"),
)
_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 20
_CONTENT_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_STATIC: Final = {
    file.name: (file.read_bytes(), _CONTENT_TYPES[file.suffix])
    for file in sorted((Path(__file__).parent / "static").iterdir())
}


class Console:
    """The console of one node. :meth:`add_to` an application before it runs."""

    def __init__(self, node: ShownNode, limits: CallLimits | None = None) -> None:
        self._node = node
        self._limits = limits or CallLimits()
        self._calls = ClusterCalls(self._limits)
        self._traffic = TrafficSamples(node.counters, asyncio.get_running_loop().call_later, node.now_ms)

    def add_to(self, app: web.Application) -> None:
        app.add_routes(
            [
                web.get("/", self._go_home),
                web.get(f"{HOME}/traffic.json", self._rates),
                web.get(f"{HOME}/static/{{name}}", self._static),
                *(web.get(path, self._shows(kind)) for path, kind in _PAGES.items()),
                web.get(f"{_TOPIC}/produce", self._form),
                web.post(f"{_TOPIC}/produce", self._produce),
                web.get(f"{HOME}/{{rest:.*}}", self._nowhere),
            ]
        )
        app.cleanup_ctx.append(self._live)

    async def _live(self, app: web.Application) -> AsyncIterator[None]:
        self._traffic.start()
        yield
        self._traffic.stop()
        await self._calls.close()

    async def _go_home(self, request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(HOME)

    async def _nowhere(self, request: web.Request) -> web.Response:
        return self._failed(NO_PAGE)

    async def _rates(self, request: web.Request) -> web.Response:
        return web.json_response(self._traffic.rates())

    async def _static(self, request: web.Request) -> web.Response:
        found = _STATIC.get(request.match_info["name"])
        if found is None:
            return self._failed(NO_PAGE)
        return web.Response(body=found[0], content_type=found[1], charset="utf-8")

    def _shows(self, kind: type[Page]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._show(request, kind)

        return handle

    async def _show(self, request: web.Request, kind: type[Page]) -> web.StreamResponse:
        if not self._node.is_broker and kind is not QuorumPage:
            if kind is OverviewPage:
                raise web.HTTPFound(QuorumPage.TAB)
            return self._failed(CONTROLLER_ONLY)
        try:
            page = kind.parse(Parameters(request.query), request.match_info)
            common = self._common(kind.TAB)
            if isinstance(page, QuorumPage) and not self._node.servers():
                return _html(render(page.TEMPLATE, **common, **page.unasked()))

            async def make(admin: Admin) -> str:
                return render(page.TEMPLATE, **common, **await page.load(admin, self._limits))

            return _html(await self._ask(make))
        except EXPECTED as error:
            return self._failed(failure_of(error), kind.TAB)

    async def _ask(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        servers = self._node.servers()
        if not servers:
            raise NotReadyError
        return await self._calls.run(servers, work)

    async def _form(self, request: web.Request) -> web.StreamResponse:
        if self._node.mode != PRODUCE:
            return self._failed(NO_PRODUCING)
        return await self._show(request, ProducePage)

    async def _produce(self, request: web.Request) -> web.StreamResponse:
        if self._node.mode != PRODUCE or not self._node.is_broker:
            return self._failed(NO_PRODUCING)
        if request.content_type != _FORM:
            return self._failed(NO_FORM)
        body, path, common = await request.read(), request.match_info, self._common(ProducePage.TAB)

        async def work(admin: Admin) -> str | web.Response:
            """The address of the record's page, or the form once more with what is wrong."""
            form = _parse_form(body)
            try:
                record = parse_record(form, path)
                place = await write(admin, self._limits, record, self._node.wall_ms())
            except EXPECTED as error:
                failure = failure_of(error)
                facts = ProducePage.parse(form, path).again(form, failure.text)
                return _html(render(ProducePage.TEMPLATE, **common, **facts), failure.status)
            return RecordsPage.written_at(place)

        try:
            result = await self._ask(work)
        except EXPECTED as error:
            return self._failed(failure_of(error), ProducePage.TAB)
        if isinstance(result, str):
            raise web.HTTPSeeOther(result)
        return result

    def _common(self, tab: str) -> dict[str, object]:
        """Return the values on every page; taken from the node on its own loop."""
        node = self._node
        return {
            "node_id": node.node_id,
            "may_produce": node.mode == PRODUCE,
            "tabs": [(kind.TAB, name) for kind, name in _TABS if node.is_broker or kind is QuorumPage],
            "tab": tab,
            "not_ready": node.why_not_ready(),
            "own_quorum": node.quorum(),
            "now_ms": node.wall_ms(),
        }

    def _failed(self, failure: Failure, tab: str = "") -> web.Response:
        return _html(render("failure.html", **self._common(tab), failure=failure), failure.status)


def _html(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html")


def _parse_form(body: bytes) -> Parameters:
    """:class:`BadParameterError` if it has too many fields."""
    try:
        fields = parse_qsl(body.decode("utf-8", "replace"), True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadParameterError("this form has too many fields") from None
    return Parameters(dict(fields))
