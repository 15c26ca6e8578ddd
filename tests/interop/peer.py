"""A peer that sends anything to a real node, and another that must not be affected."""

import threading
from pathlib import Path
from typing import Unpack

from confluent_kafka import KafkaError, Message, Producer

from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from pykraft.testing.processes.wire_client import WireClient
from tests.batch_fields import BatchFields
from tests.interop.clusters import addresses_of, printed_by

SEED = 20_26
MAX_GROWTH_BYTES = 100 * 1024 * 1024
MAX_FRAME_BYTES = 100 * 1024 * 1024
TIMEOUT_S = PATIENCE_S


class Peer(WireClient):
    """A bare connection to the broker."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(addresses_of(cluster)[1])


def log_of(cluster: Cluster) -> str:
    return printed_by(cluster, 1)


def memory_bytes(cluster: Cluster) -> int:
    """The resident memory of the server process."""
    status = Path(f"/proc/{cluster.pids[1]}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024


def open_files(cluster: Cluster) -> int:
    return len(list(Path(f"/proc/{cluster.pids[1]}/fd").iterdir()))


class OtherClient:
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
