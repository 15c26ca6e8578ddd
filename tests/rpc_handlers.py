"""The server side of the RPC port without a network: a test calls handlers by their methods' names."""

from pykraft.runtime.rpc import RpcHandler


class RpcHandlers:
    def __init__(self) -> None:
        self.handlers: dict[str, RpcHandler] = {}

    def register(self, method: str, handler: RpcHandler) -> None:
        self.handlers[method] = handler

    async def bind(self, host: str, port: int) -> int:
        return port

    async def start(self) -> None: ...

    async def stop(self, grace_ms: int) -> None: ...
