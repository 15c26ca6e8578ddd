"""The time of a formatted single node from process start to its first answered request.

    python benchmarks/startup.py [--tries 9]

Prints every try with the processor time of the node until then, the medians, and the ratio to starting the
bare interpreter in the same run. Each try is a new process over the same data directory, ended with SIGTERM
before the next. The code is compiled beforehand, like that of an installed package, whatever the environment
sets for bytecode.
"""

import argparse
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pykraft.runtime.address import Address
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.formatted import format_node, node_properties, write_properties
from pykraft.testing.processes.listeners import LOOPBACK

API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
GIVE_UP_S = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=9)
    tries = parser.parse_args().tries
    with tempfile.TemporaryDirectory() as directory:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(directory) / "bytecode")
        properties, port = _format(Path(directory))
        _start_once(properties, port)  # compiles what it imports
        figures = [_start_once(properties, port) for _ in range(tries)]
    interpreter = statistics.median(_bare_interpreter() for _ in range(tries))
    for seconds, cpu_s, rss_kib in figures:
        print(
            f"first answer after {seconds * 1000:6.0f} ms, {cpu_s * 1000:.0f} ms of processor time,"
            f" resident {rss_kib / 1024:.0f} MiB"
        )
    median, cpu = (statistics.median(figure[column] for figure in figures) for column in (0, 1))
    print(
        f"median of {tries}: {median * 1000:.0f} ms, {median / interpreter:.1f} times the bare interpreter"
        f" ({interpreter * 1000:.0f} ms), {cpu * 1000:.0f} ms of processor time"
    )


def _format(directory: Path) -> tuple[Path, int]:
    port, controller_port = free_ports(2)
    broker, controller = ({1: Address(LOOPBACK, one)} for one in (port, controller_port))
    properties = directory / "server.properties"
    write_properties(properties, node_properties(1, controller, broker, directory / "data"))
    format_node(properties, "startup-benchmark")
    return properties, port


def _start_once(properties: Path, port: int) -> tuple[float, float, int]:
    """(seconds to the first answer, processor seconds and resident KiB then)."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "pykraft.node", "server", "start", str(properties)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            _ask(port, begin + GIVE_UP_S)
            seconds = time.perf_counter() - begin
            return seconds, _cpu_s(process.pid), _resident_kib(process.pid)
        finally:
            process.terminate()


def _ask(port: int, give_up: float) -> None:
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            if time.perf_counter() > give_up:
                raise
            time.sleep(0.002)
    with connection:
        connection.sendall(API_VERSIONS_V0)
        assert connection.recv(4), "the node closed the connection"


def _cpu_s(pid: int) -> float:
    """Of all threads of a process; the first figure of a thread's ``schedstat`` is in nanoseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _resident_kib(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def _bare_interpreter() -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
