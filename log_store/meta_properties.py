"""``meta.properties``: the cluster, node and directory id of a log directory (Kafka's version 1).

Written once by formatting. A server compares it with its own configuration and refuses a foreign directory.
"""

from __future__ import annotations

from pykraft.kafka_protocol.ids import Uuid, uuid_from_str, uuid_to_str
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.checkpoint import parse_properties
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.runtime.disk import Disk

META_PROPERTIES = "meta.properties"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Identity of a log directory."""

    version: int
    cluster_id: str
    node_id: int
    directory_id: Uuid


def read_meta_properties(disk: Disk, log_directory: str) -> MetaProperties | None:
    """None if the directory is not formatted; :class:`CorruptCheckpointError` if the file is malformed."""
    path = f"{log_directory}/{META_PROPERTIES}"
    try:
        values = parse_properties(disk.read(path), path)
    except FileNotFoundError:
        return None
    try:
        meta = MetaProperties(
            version=int(values["version"]),
            cluster_id=values["cluster.id"],
            node_id=int(values["node.id"]),
            directory_id=uuid_from_str(values["directory.id"]),
        )
    except KeyError as missing:
        raise CorruptCheckpointError(path, f"{missing} is missing") from None
    except ValueError as error:
        raise CorruptCheckpointError(path, str(error)) from None
    if meta.version != 1:
        raise CorruptCheckpointError(path, f"version is {meta.version}, known is 1")
    return meta


def write_meta_properties(disk: Disk, log_directory: str, meta: MetaProperties) -> None:
    """Create the directory if necessary and replace the file; durable on return."""
    disk.make_dirs(log_directory)
    lines = (
        f"cluster.id={meta.cluster_id}",
        f"directory.id={uuid_to_str(meta.directory_id)}",
        f"node.id={meta.node_id}",
        f"version={meta.version}",
    )
    disk.write_atomic(f"{log_directory}/{META_PROPERTIES}", "\n".join([*lines, ""]).encode("utf-8"))
