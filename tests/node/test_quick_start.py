"""A node that is alone in its quorum answers clients before it imports and binds what other nodes need."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.node import node as node_module
from pykraft.node.broker_node import BrokerNode
from pykraft.node.cli.plain_start import PlainStart, read_plainly
from pykraft.node.config import ServerConfig
from pykraft.node.errors import StartError
from pykraft.runtime import late_grpc
from pykraft.runtime.address import Address
from pykraft.runtime.late_grpc import LateGrpcServer, make_grpc_transport
from pykraft.runtime.rpc import RpcFailure
from pykraft.testing.processes.waits import PATIENCE_S
from tests.asynchronous import in_loop
from tests.node.test_node_start import (
    HOST,
    broker_port,
    controller_port,
    make_config,
    make_node,
    no_fatal_errors,
)
from tests.unexpected import unexpected

FIRST_ANSWER = """
import asyncio, os, struct, sys
from pykraft.node import __main__, broker_node, node

port = int(sys.argv.pop())
start = broker_node.BrokerNode.start
node._ALONE_MS = 3_600_000  # however slow this machine is


async def start_and_ask(broker):
    await start(broker)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    assert await reader.readexactly(4)
    print(*sys.modules, flush=True)
    os._exit(0)


broker_node.BrokerNode.start = start_and_ask
__main__.main()
"""
NEEDLESS = {
    *("grpc", "click", "crc32c", "email", "importlib.metadata", "difflib", "shutil", "ctypes"),
    *("pykraft.kafka_client", "pykraft.spark", "pykraft.jepsen_like", "pykraft.testing", "numpy", "rich"),
    *("pykraft.runtime.simulated", "confluent_kafka"),
}
MOST_MODULES = 740
"""A module costs between a tenth of a millisecond and several. There are 721 now, of which 50 are for
transactions.
"""


fatal = in_loop(no_fatal_errors)


def write_properties(path: Path, config: ServerConfig) -> None:
    path.write_text("\n".join(f"{key}={value}" for key, value in config.given.items()))


def test_first_answer_comes_before_the_modules_that_it_does_not_need(tmp_path: Path) -> None:
    config = make_config(tmp_path / "data")
    write_properties(tmp_path / "server.properties", config)
    arguments = ["server", "start", str(tmp_path / "server.properties"), str(broker_port(config))]
    printed = subprocess.run(
        [sys.executable, "-c", FIRST_ANSWER, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    imported = set(printed.stdout.split())
    assert "pykraft.node.run" in imported, printed.stderr
    assert not NEEDLESS & imported
    assert len(imported) < MOST_MODULES


async def ask_controller(config: ServerConfig) -> bool:
    """Whether the controller answers another node."""
    transport = make_grpc_transport(unexpected)
    reply: asyncio.Future[bytes | RpcFailure] = asyncio.get_running_loop().create_future()
    service = pb.DESCRIPTOR.services_by_name["Controller"].full_name
    request = pb.BrokerHeartbeatRequest(broker_id=9).SerializeToString()
    address = Address(HOST, controller_port(config))
    transport.send(address, f"/{service}/BrokerHeartbeat", request, 2000, reply.set_result)
    try:
        return isinstance(await reply, bytes)
    finally:
        await transport.close()


async def test_node_that_is_up_answers_other_nodes(fatal: list[BaseException], tmp_path: Path) -> None:
    config = make_config(tmp_path)
    node = make_node(config, fatal)
    await node.start()
    assert await ask_controller(config)
    await node.stop()


async def test_other_nodes_are_answered_while_a_broker_takes_long_to_start(
    fatal: list[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "_ALONE_MS", 1)
    go_on = asyncio.Event()
    start_broker = BrokerNode.start

    async def start_slowly(broker: BrokerNode) -> None:
        await go_on.wait()
        await start_broker(broker)

    monkeypatch.setattr(BrokerNode, "start", start_slowly)
    config = make_config(tmp_path)
    node = make_node(config, fatal)
    start = asyncio.ensure_future(node.start())
    while not await ask_controller(config):
        assert not start.done()
    assert not start.done()
    go_on.set()
    await start
    await node.stop()


@pytest.mark.parametrize(
    ("voters", "expected"),
    [
        ("1@{host}:{port}", ["broker", "others"]),
        ("1@{host}:{port},2@{host}:1", ["others"]),  # the broker waits for a quorum
    ],
    ids=["the only voter", "one of two voters"],
)
async def test_only_voter_serves_others_last_and_one_of_several_first(
    fatal: list[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    voters: str,
    expected: list[str],
) -> None:
    monkeypatch.setattr(node_module, "_ALONE_MS", 3_600_000)
    begun: list[str] = []
    serve, start_broker = LateGrpcServer.start, BrokerNode.start

    async def note_others(server: LateGrpcServer) -> None:
        begun.append("others")
        await serve(server)

    async def note_broker(broker: BrokerNode) -> None:
        await start_broker(broker)
        begun.append("broker")

    monkeypatch.setattr(LateGrpcServer, "start", note_others)
    monkeypatch.setattr(BrokerNode, "start", note_broker)
    config = make_config(tmp_path)
    port = controller_port(config)
    quorum = {"controller.quorum.voters": voters.format(host=HOST, port=port)}
    config = make_config(tmp_path, {"listeners": config.given["listeners"], **quorum})
    node = make_node(config, fatal)
    start = asyncio.ensure_future(node.start())
    while len(begun) < len(expected):
        await asyncio.sleep(0)
    assert begun == expected
    start.cancel()
    await asyncio.wait([start])
    await node.stop()


async def test_address_that_is_lost_while_the_node_starts_ends_the_start(
    fatal: list[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(server: LateGrpcServer) -> None:
        raise OSError("address already in use")

    monkeypatch.setattr(LateGrpcServer, "start", lose)
    config = make_config(tmp_path)
    node = make_node(config, fatal)
    where = f"CONTROLLER://{HOST}:{controller_port(config)}"
    with pytest.raises(StartError, match=f"cannot listen on {where}: address already in use"):
        await node.start()
    await node.stop()


async def test_grpc_that_cannot_be_imported_ends_the_start(
    fatal: list[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ImportError("a shared library is missing")

    monkeypatch.setattr(late_grpc, "_import_grpc", fail)
    node = make_node(make_config(tmp_path), fatal)
    with pytest.raises(StartError, match="node 1 does not start: gRPC: a shared library is missing"):
        await node.start()
    await node.stop()


@pytest.mark.parametrize(
    ("arguments", "file", "overrides", "descriptor"),
    [
        (["f"], "f", {}, None),
        (
            ["--override", "a=b=c", "f", "--override", " d =", "--override", "a=e"],
            "f",
            {"a": "e", "d": ""},
            None,
        ),
        (["f", "--supervisor-fd", "7"], "f", {}, 7),
    ],
)
def test_plain_command_line_is_read_without_the_parser(
    arguments: list[str], file: str, overrides: Mapping[str, str], descriptor: int | None
) -> None:
    assert read_plainly(arguments) == PlainStart(file, overrides, descriptor)


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["f", "g"], ["--help"], ["f", "--overide", "a=b"], ["--override=a=b", "f"], ["--", "f"]),
        *(["f", "--override"], ["f", "--override", "a"], ["f", "--override", "=b"]),
        *(["f", "--supervisor-fd"], ["f", "--supervisor-fd", "-1"], ["f", "--supervisor-fd", "x"]),
    ],
)
def test_any_other_command_line_is_left_to_the_parser(arguments: list[str]) -> None:
    assert read_plainly(arguments) is None
