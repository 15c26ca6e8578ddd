"""HTTP by hand: requests that no library would send."""

import http.client
import socket
from collections.abc import Iterable
from typing import NamedTuple

from pykraft.testing.processes.waits import PATIENCE_S


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    text: str

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


class RawHttp:
    """Asks the server at a port of this machine, one connection for each request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.host = f"127.0.0.1:{port}"

    def ask(
        self,
        target: str,
        method: str = "GET",
        headers: Iterable[tuple[str, str]] = (),
        *,
        hosts: Iterable[str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """``hosts``: the headers ``Host``, in place of the right one."""
        named = [("Host", host) for host in ([self.host] if hosts is None else hosts)]
        sized = [("Content-Length", str(len(body)))] if body or method == "POST" else []
        lines = [f"{name}: {value}" for name, value in [*named, *headers, *sized]]
        head = "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""])
        return self.send(head.encode("utf-8", "surrogateescape") + body, method)

    def send(self, data: bytes, method: str = "GET") -> Answer:
        with socket.create_connection(("127.0.0.1", self._port), PATIENCE_S) as connection:
            connection.sendall(data)
            answer = http.client.HTTPResponse(connection, method=method)
            answer.begin()
            return Answer(answer.status, answer.getheaders(), answer.read().decode())
