"""Links through a proxy, which is a process of its own: of any TCP connection that goes to its ports."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pykraft.jepsen_like.faults.surroundings.surroundings import LinkState
from pykraft.runtime.address import Address
from pykraft.testing.processes.listeners import LOOPBACK

_COMMAND: Final = (sys.executable, "-m", "pykraft.jepsen_like.faults.surroundings.proxy")
_CLOSE_TIMEOUT_S: Final = 10.0


class ProxyError(RuntimeError):
    """The proxy refused a command, or has ended."""


class ProxyLinks:
    """Implements :class:`~pykraft.jepsen_like.faults.surroundings.surroundings.Links`, for several threads.

    The proxy is started here; its errors go to ``output_file``. It ends with :meth:`close`, or when this
    process ends, however that happens.
    """

    def __init__(self, output_file: Path) -> None:
        self._output_file = output_file
        self._lock = threading.Lock()
        with output_file.open("ab") as output:
            self._process = subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def listen(self, source: int, target: int, address: Address, port: int = 0) -> int:
        """A port of loopback on which ``source`` reaches ``target`` at ``address``; any if it is 0."""
        arguments = {"host": LOOPBACK, "port": port, "to_host": address.host, "to_port": address.port}
        answer = self._command("listen", {"source": source, "target": target, **arguments})
        return int(answer["port"])

    def set(self, source: int, target: int, state: LinkState) -> None:
        """:class:`ProxyError` if there is no link between the two."""
        self._command("set", {"source": source, "target": target, "state": asdict(state)})

    def why_unavailable(self, state: LinkState) -> str | None:
        return None

    def close(self) -> None:
        """End the proxy, and all connections with it. May be called twice."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            with contextlib.suppress(OSError):  # it has ended before
                self._process.stdin.close()
            try:
                self._process.wait(_CLOSE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()

    def _command(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps({name: arguments}) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except (OSError, ValueError) as error:
                raise ProxyError(f"the proxy has ended ({error}); see {self._output_file}") from error
        if not line:
            raise ProxyError(f"the proxy has ended; see {self._output_file}")
        answer: Mapping[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProxyError(f"{name} {arguments}: {answer['error']}")
        return answer
