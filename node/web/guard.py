"""Rules for every answer over HTTP: who may ask, and what a browser may do with it.

A browser on this machine or in this network must not act here for a page of a stranger.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from pykraft.node.web.host_names import AllowedHosts, is_same_origin

_POLICY: Final = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
POLICY_HEADER: Final = "Content-Security-Policy"
"""A page that needs another policy has this header already."""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With no-referrer browsers would not even tell this server where the forms of its own pages come from.
    "Referrer-Policy": "same-origin",
    "Server": "pykraft",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_SAFE_METHODS: Final = frozenset(("GET", "HEAD"))
_OWN_SITES: Final = frozenset(("same-origin", "none"))
_NO_NAME: Final = (
    "This server answers to IP addresses, to localhost, and to the names in pykraft.http.allowed.hosts.\n"
)
_NO_PAGE: Final = "This request comes from a page of another site.\n"


async def guarded(app: web.Application, names: Iterable[str], **options: Any) -> web.AppRunner:
    """Set up a runner that serves ``app`` under its ``names`` only. ``options`` are the runner's."""
    app.middlewares.insert(0, _guard(AllowedHosts(names)))
    runner = web.AppRunner(app, access_log=None, **options)
    await runner.setup()
    assert runner.server is not None
    runner.server.request_factory = partial(app._make_request, _cls=_Asked)
    return runner


class _Asked(web.Request):
    """A request through which every answer passes, also those that aiohttp makes by itself."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)
        response.headers.setdefault(POLICY_HEADER, _POLICY)
        await super()._prepare_hook(response)


def _guard(hosts: AllowedHosts) -> Middleware:
    """Refuses what is meant for another server, and what pages of other sites ask for.

    They may have a link to a page here. They may neither load anything nor change anything.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not hosts.allow(request.headers.getall("Host", []), request.raw_path):
            raise web.HTTPMisdirectedRequest(text=_NO_NAME)
        if not _is_from_here(request):
            raise web.HTTPForbidden(text=_NO_PAGE)
        return await handler(request)

    return check


def _is_from_here(request: web.Request) -> bool:
    """By what browsers send; a request without it comes from none."""
    headers = request.headers
    sites = headers.getall("Sec-Fetch-Site", [])
    if request.method in _SAFE_METHODS:
        is_link = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
        return is_link or _OWN_SITES.issuperset(sites)
    origins = headers.getall("Origin", [])
    return _OWN_SITES.issuperset(sites) and all(is_same_origin(origin, headers["Host"]) for origin in origins)
