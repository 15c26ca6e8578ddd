"""Nodes before their first start: their properties in a file, and their directories formatted."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pykraft.runtime.address import Address
from pykraft.testing.processes.commands import run_command
from pykraft.testing.processes.systems import Pykraft, System


def voters(controllers: Mapping[int, Address]) -> str:
    """``controller.quorum.voters``."""
    return ",".join(f"{node_id}@{address}" for node_id, address in controllers.items())


def node_properties(
    node_id: int, controllers: Mapping[int, Address], brokers: Mapping[int, Address], data: Path
) -> dict[str, str]:
    """Return the properties of a node that is broker, controller or both."""
    listeners = {"PLAINTEXT": brokers.get(node_id), "CONTROLLER": controllers.get(node_id)}
    roles = ["broker"] * (node_id in brokers) + ["controller"] * (node_id in controllers)
    return {
        "process.roles": ",".join(roles),
        "node.id": str(node_id),
        "listeners": ",".join(f"{name}://{at}" for name, at in listeners.items() if at is not None),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters(controllers),
        "log.dirs": str(data),
    }


def write_properties(file: Path, properties: Mapping[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")


def format_node(
    file: Path, cluster_id: str, options: Iterable[str] = (), *, system: System | None = None
) -> None:
    """:class:`.commands.CommandError` if that fails."""
    run_command(*(system or Pykraft()).format_command(file, cluster_id, *options))
