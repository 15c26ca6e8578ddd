"""A node alone in its cluster, in a thread of this process, on files that are there.

It shares no code with ``pykraft dev`` or :mod:`pykraft.testing`'s clusters beyond the thread, so that changes
of those do not change how the files of an earlier release are opened.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.node.format import format_directories
from pykraft.node.incarnation import draw_uuid
from pykraft.runtime.free_ports import free_ports
from pykraft.runtime.os_disk import OsDisk
from pykraft.testing.node_thread import NodeThread
from pykraft.testing.nodes import SettableClock
from pykraft.testing.processes.waits import PATIENCE_S

HOST: Final = "127.0.0.1"
CLUSTER: Final = "4L6g3nShT-eMCtK--X86sw"


def configure(data: Path, properties: Mapping[str, str]) -> tuple[ServerConfig, str]:
    """The configuration of the node whose data are in ``data``, and its bootstrap server.

    Its voters are in the metadata log.
    """
    broker, controller = (f"{HOST}:{port}" for port in free_ports(2))
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
        "log.dirs": str(data),
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.backoff.ms": "3600000",
    }
    return load_server_config("\n".join(f"{k}={v}" for k, v in (values | dict(properties)).items())), broker


def format_node(data: Path, now_ms: int) -> None:
    """As ``pykraft storage format --standalone``."""
    config, _ = configure(data, {})
    new_uuid = partial(draw_uuid, os.urandom)
    format_directories(OsDisk(), config, CLUSTER, BOOTSTRAP_FEATURES, new_uuid, now_ms, standalone=True)


@contextmanager
def serving(data: Path, now_ms: int, properties: Mapping[str, str] | None = None) -> Iterator[str]:
    """The bootstrap server of a node that serves ``data``; its wall clock shows ``now_ms`` when it starts, so
    that nothing is too old to be kept. It is stopped in order.
    """
    config, broker = configure(data, properties or {})
    clock = SettableClock()
    clock.set(now_ms)
    node = NodeThread(config, clock, lambda handler: handler)
    node.begin().result(PATIENCE_S)
    try:
        yield broker
    finally:
        node.stop()
