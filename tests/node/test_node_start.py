"""A real node in this process: failed starts leave nothing behind, and a second attempt works."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from pykraft.broker.logs.log_manager import LogManager
from pykraft.configuration.keys import ConfigError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store import checkpoint
from pykraft.log_store.interface import LogConfig
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.broker_node import BrokerNode
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.node.errors import StartError
from pykraft.node.format import format_directories
from pykraft.node.node import Node
from pykraft.node.run import make_world
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.free_ports import free_ports
from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.tasks import Workers
from pykraft.testing.processes.waits import PATIENCE_S
from tests.asynchronous import in_loop
from tests.unexpected import unexpected

HOST = "127.0.0.1"
TIMEOUT_S = PATIENCE_S


draw = Random(1).randbytes


def make_config(directory: Path, overrides: Mapping[str, str] | None = None) -> ServerConfig:
    """A formatted combined node, alone in its cluster."""
    broker, controller = free_ports(2)
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "log.dirs": str(directory),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
    } | dict(overrides or {})
    config = load_server_config("\n".join(f"{key}={value}" for key, value in properties.items()))
    format_directories(
        OsDisk(), config, "c", BOOTSTRAP_FEATURES, lambda: Uuid(draw(16)), 0, ignore_formatted=True
    )
    return config


def make_node(config: ServerConfig, fatal: list[BaseException]) -> Node:
    """To be called on the event loop."""
    return Node(config, make_world(config, fatal.append))


@contextmanager
def taken(port: int) -> Iterator[None]:
    with socket.socket() as holder:
        holder.bind((HOST, port))
        holder.listen()
        yield


async def until_only_this_task_is_left() -> None:
    """gRPC ends its own tasks a little later."""
    async with asyncio.timeout(5):
        while asyncio.all_tasks() != {asyncio.current_task()}:
            await asyncio.sleep(0)


@asynccontextmanager
async def no_fatal_errors() -> AsyncIterator[list[BaseException]]:
    """The list of fatal errors, which must stay empty."""
    found: list[BaseException] = []
    async with asyncio.timeout(TIMEOUT_S):
        yield found
    assert found == []


fatal = in_loop(no_fatal_errors)


def broker_port(config: ServerConfig) -> int:
    return config.broker_listeners[0].port


def controller_port(config: ServerConfig) -> int:
    assert config.controller_listener is not None
    return config.controller_listener.port


@pytest.mark.parametrize("port_of", [broker_port, controller_port])
async def test_port_in_use_is_named_and_nothing_is_left_running(
    fatal: list[BaseException], tmp_path: Path, port_of: Callable[[ServerConfig], int]
) -> None:
    config = make_config(tmp_path)
    port = port_of(config)
    node = make_node(config, fatal)
    with taken(port), pytest.raises(StartError, match=str(port)):
        await node.start()
    await node.stop()
    await until_only_this_task_is_left()
    again = make_node(config, fatal)
    await again.start()
    await again.stop()
    await until_only_this_task_is_left()


@pytest.mark.parametrize("turns", [1, 5, 20, 60, 200, 1000])
async def test_start_aborted_at_any_point_can_be_stopped_and_repeated(
    fatal: list[BaseException], tmp_path: Path, turns: int
) -> None:
    config = make_config(tmp_path)
    node = make_node(config, fatal)
    start = asyncio.ensure_future(node.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    start.cancel()
    await asyncio.wait([start])
    await node.stop()
    await until_only_this_task_is_left()
    again = make_node(config, fatal)
    await again.start()
    await again.stop()
    await until_only_this_task_is_left()


async def test_no_replica_applies_a_role_once_the_coordinators_stop(
    fatal: list[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, left = BrokerNode.start, []
    node = make_node(make_config(tmp_path), fatal)

    async def start_watched(broker: BrokerNode) -> None:
        groups, worklist = broker.groups, broker.data.worklist

        async def stop_and_look() -> None:
            worklist.add(("t", 0))
            await groups.stop()
            for _ in range(20):
                await asyncio.sleep(0)
            left.append(bool(worklist))

        monkeypatch.setattr(broker, "groups", SimpleNamespace(start=groups.start, stop=stop_and_look))
        await start(broker)

    monkeypatch.setattr(BrokerNode, "start", start_watched)
    await node.start()
    await node.stop()
    assert left == [True], "no work is started any more"
    await until_only_this_task_is_left()


def single_node_config(directory: Path) -> ServerConfig:
    """One of three voters; the others never start."""
    mine, other, third, broker = free_ports(4)
    return make_config(
        directory,
        {
            "controller.quorum.voters": f"1@{HOST}:{mine},2@{HOST}:{other},3@{HOST}:{third}",
            "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{mine}",
        },
    )


async def fail_to_start(node: Node) -> None:
    """Start a node that finds no controller, wait until it waits for one, and stop it."""
    start = asyncio.ensure_future(node.start())
    done, _ = await asyncio.wait([start], timeout=0.5)
    assert not done
    start.cancel()
    await asyncio.wait([start])
    async with asyncio.timeout(5):
        await node.stop()
    await until_only_this_task_is_left()


async def test_node_without_a_quorum_stops_at_once_when_its_start_is_aborted(
    fatal: list[BaseException], tmp_path: Path
) -> None:
    await fail_to_start(make_node(single_node_config(tmp_path), fatal))


async def test_high_watermarks_survive_an_aborted_start(fatal: list[BaseException], tmp_path: Path) -> None:
    config = single_node_config(tmp_path)
    logs = LogManager(
        OsDisk(),
        [str(tmp_path)],
        LogConfig(),
        SystemClock(),
        Workers(),
        unexpected,
        lambda key: None,
    )
    await logs.start()
    (opened,) = await logs.open_or_create([("t", 0, Uuid(b"t" * 16), LogConfig())])
    batch = encode_batch([RecordInput(None, b"v", (), 0)] * 7)
    opened.log.append(batch, [read_header(batch)], now_ms=0)
    await logs.stop(5, {("t", 0): 7})
    await fail_to_start(make_node(config, fatal))
    path = f"{tmp_path}/{checkpoint.REPLICATION_OFFSET_CHECKPOINT}"
    assert checkpoint.read_offset_checkpoint(OsDisk(), path) == {("t", 0): 7}


async def test_damaged_meta_properties_are_refused_by_name(
    fatal: list[BaseException], tmp_path: Path
) -> None:
    config = make_config(tmp_path)
    (tmp_path / "meta.properties").write_text("nonsense")
    node = make_node(config, fatal)
    with pytest.raises(ConfigError, match=r"meta\.properties.*format"):
        await node.start()
    await node.stop()


async def test_damaged_checkpoint_is_written_again(fatal: list[BaseException], tmp_path: Path) -> None:
    path = tmp_path / checkpoint.REPLICATION_OFFSET_CHECKPOINT
    path.write_text("nonsense")
    await fail_to_start(make_node(single_node_config(tmp_path), fatal))
    assert checkpoint.read_offset_checkpoint(OsDisk(), str(path)) == {}


def test_directory_that_cannot_be_created_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        with pytest.raises(ConfigError, match="file"):
            make_config(tmp_path / place)


@pytest.mark.parametrize(
    ("host", "warns"), [("127.0.0.1", False), ("localhost", False), ("", True), ("0.0.0.0", True)]
)
async def test_controller_listener_that_others_can_reach_causes_a_warning(
    fatal: list[BaseException], tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, warns: bool
) -> None:
    broker, controller = free_ports(2)
    listeners = f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{host}:{controller}"
    quorum = f"1@{HOST}:{controller}"
    config = make_config(tmp_path / "d", {"listeners": listeners, "controller.quorum.voters": quorum})

    with caplog.at_level("WARNING"):
        node = make_node(config, fatal)
        await node.start()
        await node.stop()
    notified = [it.getMessage() for it in caplog.records if "administers the cluster" in it.getMessage()]
    assert len(notified) == warns


@pytest.mark.parametrize(("switch", "expected"), [({}, True), ({"pykraft.sendfile": "false"}, False)])
async def test_sendfile_setting_reaches_the_sockets(
    fatal: list[BaseException], tmp_path: Path, switch: dict[str, str], expected: bool
) -> None:
    world = make_world(make_config(tmp_path, switch), fatal.append)
    assert world.streams.sendfile is expected
    assert [size_bytes for _, size_bytes in world.streams.buffer_sizes] == [102_400, 102_400]
