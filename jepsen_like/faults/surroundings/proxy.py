"""The proxy: one process that all connections of a cluster go through, and that breaks their links.

``python -m pykraft.jepsen_like.faults.surroundings.proxy`` reads JSON commands, one a line, and answers each
with a line. It ends with its standard input, so it does not outlive the process that started it. It needs
nothing but the standard library. The commands:

- ``{"listen": {"source": 1, "target": 2, "host": "127.0.0.1", "port": 0, "to_host": …, "to_port": …}}``:
  a client that connects to this port is ``source``, and is connected to that address of ``target``. Answer:
  ``{"port": 40123}``.
- ``{"set": {"source": 1, "target": 2, "state": {"cut": true}}}``: what ``source`` sends to ``target`` fares
  like this from now on; what ``state`` does not name is whole. Answer: ``{}``.

A command that cannot be carried out is answered with ``{"error": …}``.
"""

import asyncio
import json
import resource
import sys
from collections.abc import Mapping
from typing import Any, Final

from pykraft.jepsen_like.faults.surroundings.proxy_connection import Connection
from pykraft.jepsen_like.faults.surroundings.proxy_flow import Direction
from pykraft.jepsen_like.faults.surroundings.surroundings import LinkState
from pykraft.runtime.address import Address

_BACKLOG: Final = 1024
_MOST_FILES: Final = 1 << 16


class Proxy:
    """All listeners and links. Belongs to the running event loop."""

    def __init__(self) -> None:
        self._directions: dict[tuple[int, int], Direction] = {}
        self._servers: list[asyncio.Server] = []

    async def carry_out(self, line: bytes) -> Mapping[str, object]:
        """The answer to one command."""
        try:
            ((name, arguments),) = json.loads(line).items()
            if name == "listen":
                return {"port": await self._listen(**arguments)}
            if name == "set":
                return self._set(**arguments)
            raise ValueError(f"no command {name!r}")
        except (AttributeError, TypeError, ValueError, OSError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    async def _listen(
        self, source: int, target: int, host: str, port: int, to_host: str, to_port: int
    ) -> int:
        there = self._directions.setdefault((source, target), Direction())
        back = self._directions.setdefault((target, source), Direction())
        address = Address(to_host, to_port)
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(there, back, address).client, host, port, backlog=_BACKLOG
        )
        self._servers.append(server)
        listening: int = server.sockets[0].getsockname()[1]
        return listening

    def _set(self, source: int, target: int, state: dict[str, Any]) -> Mapping[str, object]:
        direction = self._directions.get((source, target))
        if direction is None:
            raise ValueError(f"nothing goes from {source} to {target}")
        direction.set(LinkState(**state))
        return {}


async def _serve() -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    proxy = Proxy()
    while line := await commands.readline():
        print(json.dumps(await proxy.carry_out(line)), flush=True)


def _allow_many_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


if __name__ == "__main__":
    _allow_many_files()
    asyncio.run(_serve())
