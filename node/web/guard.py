"""What every answer over HTTP has in common: who may ask, and what a browser may do with it."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from pykraft.runtime.address import is_loopback

_POLICY: Final = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    # With no-referrer browsers would not even tell this server where the forms of its own pages come from.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_SAFE_METHODS: Final = frozenset(("GET", "HEAD"))


def guard(listens_at: str) -> Middleware:
    """Keeps pages of other sites away: a browser on this machine is no user of theirs.

    A listener on loopback answers only to names of this machine, so that another name that leads here (DNS
    rebinding) is of no use; and what changes something must come from a page of this server.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if is_loopback(listens_at) and not _is_loopback_name(request.host):
                raise web.HTTPMisdirectedRequest(text="this server has another name\n")
            if request.method not in _SAFE_METHODS and not _is_from_here(request):
                raise web.HTTPForbidden(text="this request comes from another site\n")
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(_HEADERS)
            raise
        response.headers.update(_HEADERS)
        return response

    return check


def _is_loopback_name(host: str) -> bool:
    """Of the header ``Host``."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def _is_from_here(request: web.Request) -> bool:
    """By what browsers send; a request without it comes from none."""
    origin = request.headers.get("Origin")
    return origin is None or origin == f"{request.scheme}://{request.host}"
