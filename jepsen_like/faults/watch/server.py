"""Serves the page of a run over HTTP."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from pykraft.jepsen_like.faults.reports.page.page import POLICY
from pykraft.jepsen_like.faults.reports.page.style import STYLE
from pykraft.jepsen_like.faults.run_files import PAGE, files_of
from pykraft.jepsen_like.faults.watch.live_page import build_document, build_fragment
from pykraft.jepsen_like.faults.watch.live_run import LiveRun, find_run
from pykraft.node.web import console as web_console
from pykraft.node.web.guard import POLICY_HEADER, guarded
from pykraft.node.web.host_names import normal_name
from pykraft.runtime.address import Address

_READ_S: Final = 0.5
"""So long the history is read on for one look at the page."""
_REPORT_POLICY: Final = f"{POLICY}; frame-ancestors 'none'; base-uri 'none'"
"""For a page of its own, whose style is in it, and which loads nothing else."""
_STATIC: Final = Path(__file__).parent / "static"
_STYLE: Final = STYLE + (_STATIC / "watch.css").read_text("utf-8")
_SCRIPT: Final = (_STATIC / "watch.js").read_text("utf-8")
_ICON: Final = (Path(web_console.__file__).parent / "static" / "icon.svg").read_text("utf-8")


class WatchPage:
    """The page about the run in ``directory``, or about the latest of the runs there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._run: LiveRun | None = None
        self._reading = asyncio.Lock()

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/", self._document),
                web.get("/main", self._main),
                web.get("/style.css", _fixed(_STYLE, "text/css")),
                web.get("/watch.js", _fixed(_SCRIPT, "text/javascript")),
                web.get("/icon.svg", _fixed(_ICON, "image/svg+xml")),
                web.get("/{name:.+}", self._file),
            ]
        )
        return app

    async def _document(self, request: web.Request) -> web.Response:
        return await self._answer(whole=True)

    async def _main(self, request: web.Request) -> web.Response:
        return await self._answer(whole=False)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        """The report of the run that is shown, and the files that it links to."""
        return await asyncio.to_thread(self._find, request.match_info["name"])

    def _find(self, name: str) -> web.StreamResponse:
        directory = find_run(self._directory)
        files = [] if directory is None else [directory / PAGE, *files_of(directory)]
        for file in files:
            if directory is not None and file.relative_to(directory).as_posix() == name and file.is_file():
                is_page = file.name == PAGE
                kind = "text/html" if is_page else "text/plain"
                own = {POLICY_HEADER: _REPORT_POLICY} if is_page else {}
                return web.FileResponse(file, headers={"Content-Type": f"{kind}; charset=utf-8", **own})
        raise web.HTTPNotFound

    async def _answer(self, *, whole: bool) -> web.Response:
        async with self._reading:
            text = await asyncio.to_thread(self._look, whole)
        return web.Response(text=text, content_type="text/html")

    def _look(self, whole: bool) -> str:
        found = find_run(self._directory)
        if found is None:
            self._run = None
        elif self._run is None or self._run.directory != found:
            self._run = LiveRun(found)
        if self._run is not None:
            self._run.read_on(_READ_S)
        build = build_document if whole else build_fragment
        return build(self._run, str(self._directory))


def _fixed(text: str, content_type: str) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=content_type)

    return handle


def watch(directory: Path, host: str, port: int, say: Callable[[str], object]) -> None:
    """Serve until Ctrl-C; ``port`` 0 is a free one. :class:`OSError` if the address cannot be listened on."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(directory, host, port, say))


async def _serve(directory: Path, host: str, port: int, say: Callable[[str], object]) -> None:
    runner = await guarded(WatchPage(directory).app(), filter(None, [normal_name(host)]))
    try:
        await web.TCPSite(runner, host, port).start()
        say(f"{directory} is watched at http://{Address(host, runner.addresses[0][1])}/; Ctrl-C ends that.")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
