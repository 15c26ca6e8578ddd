"""The listeners of one broker: their connections are limited together, those between brokers exempt."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from pykraft.broker.serving.listener import ListenerLimits
from pykraft.node.client_listeners import ClientListeners
from pykraft.runtime.free_ports import free_ports
from pykraft.runtime.network.tcp import StreamRuntime
from tests.broker.echo import Echo, frame, read_frame
from tests.node.test_node_start import HOST, make_config
from tests.waits import until

Scenario = Callable[[ClientListeners, list[int]], Awaitable[None]]


def run(directory: Path, scenario: Scenario, **properties: str) -> None:
    """``scenario`` gets the ports of the listeners, in their order."""

    async def main() -> None:
        config = make_config(directory, {key.replace("_", "."): it for key, it in properties.items()})
        listeners = ClientListeners(
            config, config.broker_listeners, StreamRuntime(asyncio.get_running_loop())
        )
        ports = [endpoint.port for endpoint in await listeners.bind()]
        await listeners.start_serving(Echo())
        try:
            await scenario(listeners, ports)
        finally:
            await listeners.stop()

    asyncio.run(main())


def two_listeners(inter_broker: str) -> dict[str, str]:
    client, broker, controller = free_ports(3)
    return {
        "listeners": f"CLIENT://{HOST}:{client},BROKER://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "listener_security_protocol_map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter_broker_listener_name": inter_broker,
        "controller_quorum_voters": f"1@{HOST}:{controller}",
        "max_connections": "1",
    }


Answer = asyncio.Task[bytes]


class Peers:
    """Connections to the listeners, each of which has sent one request."""

    def __init__(self, listeners: ClientListeners) -> None:
        self._listeners = listeners
        self._writers: list[asyncio.StreamWriter] = []

    async def ask(self, port: int) -> Answer:
        """The answer to the request of a new connection."""
        before = self._count()
        reader, writer = await asyncio.open_connection(HOST, port)
        self._writers.append(writer)
        await until(lambda: self._count() > before)
        writer.write(frame(b"hello"))
        return asyncio.ensure_future(read_frame(reader))

    def _count(self) -> int:
        return sum(count for _, count in self._listeners.connection_counts())

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


def test_listeners_share_their_limit_and_the_one_between_brokers_is_exempt(tmp_path: Path) -> None:
    async def scenario(listeners: ClientListeners, ports: list[int]) -> None:
        client, broker = ports
        peers = Peers(listeners)
        assert await (await peers.ask(broker)) == b"hello"
        waiting = await peers.ask(client)
        for _ in range(5):
            assert await (await peers.ask(broker)) == b"hello"
        assert not waiting.done(), "those between brokers count, too"
        listeners.limit_connections(ListenerLimits(max_connections=7))
        assert await waiting == b"hello"
        peers.close()

    run(tmp_path, scenario, **two_listeners("BROKER"))


def test_only_listener_is_limited_as_any_other(tmp_path: Path) -> None:
    async def scenario(listeners: ClientListeners, ports: list[int]) -> None:
        (port,) = ports
        peers = Peers(listeners)
        for _ in range(2):
            assert await (await peers.ask(port)) == b"hello"
        waiting = [await peers.ask(port) for _ in range(2)]
        listeners.limit_connections(ListenerLimits(max_connections=3))
        assert await waiting[0] == b"hello" and not waiting[1].done()
        waiting[1].cancel()
        peers.close()

    run(tmp_path, scenario, max_connections="2")
