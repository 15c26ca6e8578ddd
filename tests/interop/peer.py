"""A peer that sends anything to a real node, and another that must not be affected."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path
from typing import Any, Unpack

from confluent_kafka import KafkaError, Message, Producer

from pykraft.jepsen_like.awaiting import PATIENCE_S, wait_until
from pykraft.jepsen_like.process_cluster import ProcessCluster
from pykraft.kafka_protocol import schema
from pykraft.kafka_protocol.api_keys import ApiKey, response_class
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from tests.batch_fields import BatchFields

SEED = 20_26
MAX_GROWTH_BYTES = 100 * 1024 * 1024
MAX_FRAME_BYTES = 100 * 1024 * 1024
TIMEOUT_S = PATIENCE_S


class Peer:
    """A bare connection to the broker."""

    def __init__(self, cluster: ProcessCluster) -> None:
        address = cluster.addresses[1]
        self.socket = socket.create_connection((address.host, address.port), TIMEOUT_S)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        # The broker may have closed the connection in the middle.
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def send_frame(self, frame: bytes) -> None:
        self.send(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        """One frame; None once the broker has closed the connection. TimeoutError if neither happens."""
        size = self._exactly(4)
        return None if size is None else self._exactly(struct.unpack(">i", size)[0])

    def call(self, request: schema.Message, version: int) -> Any:
        """Send a request and decode its answer, whole."""
        self.send_frame(encode_request(request, version, 7, "peer"))
        frame = self.receive()
        assert frame is not None, f"connection closed instead of an answer to {request}"
        return decode_answer(request.API_KEY, version, frame)

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return data


def decode_answer(api_key: int, version: int, frame: bytes) -> Any:
    _, body_at = decode_response_header(ApiKey(api_key), version, frame)
    return response_class(ApiKey(api_key)).decode(frame[body_at:], version)


def log_of(cluster: ProcessCluster) -> str:
    return cluster.nodes[1].output_file.read_text("utf-8", "replace")


def memory_bytes(cluster: ProcessCluster) -> int:
    """The resident memory of the server process."""
    process = cluster.nodes[1]._process
    assert process is not None
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024


def open_files(cluster: ProcessCluster) -> int:
    process = cluster.nodes[1]._process
    assert process is not None
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


class Bystander:
    """A producer that sends a record every 10 ms from its own thread."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.delivered = 0
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "linger.ms": 0,
                "retries": 0,
                "message.timeout.ms": 60_000,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self._producer.produce("bystander", b"alive", on_delivery=self._note)
            self._producer.poll(0)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error.str())
        self.delivered += 1

    def check(self) -> None:
        """Check that it continues and has never failed."""
        goal = self.delivered + 2
        arrived = "the bystander's records to arrive"
        wait_until(arrived, lambda: self.delivered >= goal, TIMEOUT_S, interval_s=0.005)
        assert self.errors == []

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert self._producer.flush(PATIENCE_S) == 0
        assert self.errors == []


def batch(*values: bytes, **fields: Unpack[BatchFields]) -> bytearray:
    records = [RecordInput(key=None, value=value, timestamp_ms=1_700_000_000_000) for value in values]
    return bytearray(encode_batch(records, **fields))
