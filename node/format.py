"""Formatting of data directories: the files that ``pykraft storage format`` writes and a starting node
checks.

A formatted directory has a ``meta.properties`` naming cluster, node and directory. The metadata directory
also holds ``bootstrap.checkpoint`` (the features a new cluster starts with) and, if the first voters are part
of the log rather than of the configuration, ``00000000000000000000-0000000000.checkpoint``, a snapshot with
them (KIP-853). A controller's also holds the mark that distinguishes a new log from a lost one
(:mod:`pykraft.quorum.bootstrap`). ``meta.properties`` is written last: a half-formatted directory counts as
unformatted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_protocol.ids import Uuid, uuid_from_str, uuid_to_str
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY, CorruptCheckpointError
from pykraft.log_store.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from pykraft.metadata_log.bootstrap import write_bootstrap_checkpoint
from pykraft.node.config import ServerConfig
from pykraft.node.os_errors import describe
from pykraft.quorum.bootstrap import format_log
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address, parse_address
from pykraft.runtime.disk import Disk


@dataclass(frozen=True, slots=True)
class FormattedDirectory:
    """One directory of :func:`format_directories`; ``skipped``: it had been formatted before."""

    path: str
    directory_id: Uuid
    skipped: bool


def parse_initial_controllers(text: str) -> VoterSet:
    """``id@host:port:directoryId,…`` → the voters. Raises :class:`ConfigError` that names the wrong item."""
    voters = []
    for item in (part.strip() for part in text.split(",")):
        node, at, rest = item.partition("@")
        address, colon, directory = rest.rpartition(":")
        if not (at and colon and node.isascii() and node.isdecimal()):
            raise ConfigError(f"--initial-controllers: {item!r} is not id@host:port:directoryId")
        try:
            voters.append(Voter(ReplicaKey(int(node), uuid_from_str(directory)), parse_address(address)))
        except ValueError as error:
            raise ConfigError(f"--initial-controllers: {error}") from None
    try:
        return VoterSet(voters)
    except ValueError as error:
        raise ConfigError(f"--initial-controllers: {error}") from None


def standalone_voters(config: ServerConfig, directory_id: Uuid) -> VoterSet:
    """This node as the only voter."""
    listener = config.controller_listener
    if not config.is_controller or listener is None:
        raise ConfigError("--standalone needs a node with the controller role")
    address = Address(listener.advertised_host, listener.advertised_port)
    return VoterSet([Voter(ReplicaKey(config.node_id, directory_id), address)])


def read_directory(disk: Disk, path: str) -> MetaProperties | None:
    """The properties of a directory, None if it is not formatted. :class:`ConfigError` if unreadable."""
    try:
        return read_meta_properties(disk, path)
    except CorruptCheckpointError as error:
        raise ConfigError(f"{error}; restore the file, or empty the directory and format it again") from None
    except OSError as error:
        raise ConfigError(f"cannot read {describe(error, path)}") from None


def format_directories(
    disk: Disk,
    config: ServerConfig,
    cluster_id: str,
    features: Mapping[str, int],
    new_uuid: Callable[[], Uuid],
    now_ms: int,
    *,
    initial_voters: VoterSet | None = None,
    standalone: bool = False,
    ignore_formatted: bool = False,
) -> list[FormattedDirectory]:
    """Format every directory of ``config``; everything is checked before anything is written."""
    found = {path: read_directory(disk, path) for path in config.all_dirs}
    for path, properties in found.items():
        if properties is None:
            continue
        if not ignore_formatted:
            raise ConfigError(
                f"{path} is already formatted; --ignore-formatted keeps it and formats the others"
            )
        if properties.cluster_id != cluster_id:
            raise ConfigError(f"{path} belongs to cluster {properties.cluster_id}, not to {cluster_id}")
    directory_ids = {path: new_uuid() for path in config.all_dirs}
    metadata_dir = config.metadata_log_dir
    if standalone:
        initial_voters = standalone_voters(config, directory_ids[metadata_dir])
    if initial_voters is not None:
        voter = initial_voters.get(config.node_id)
        if voter is not None:
            directory_ids[metadata_dir] = voter.key.directory_id
        elif config.is_controller:
            raise ConfigError(f"--initial-controllers does not name node.id {config.node_id}")
    done = []
    for path, properties in found.items():
        if properties is not None:
            done.append(FormattedDirectory(path, properties.directory_id, skipped=True))
            continue
        identity = MetaProperties(
            version=1, cluster_id=cluster_id, node_id=config.node_id, directory_id=directory_ids[path]
        )
        try:
            disk.make_dirs(path)
            if path == metadata_dir:
                write_bootstrap_checkpoint(disk, path, features)
                metadata_log = f"{path}/{METADATA_LOG_DIRECTORY}"
                format_log(disk, metadata_log, now_ms, initial_voters, may_vote=config.is_controller)
            write_meta_properties(disk, path, identity)
        except OSError as error:
            raise ConfigError(f"cannot format {describe(error, path)}") from error
        done.append(FormattedDirectory(path, directory_ids[path], skipped=False))
    return done


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The identity of this node in its formatted directories.

    ``directory_ids``: of those that could be read. ``offline``: the directories that cannot be used now, with
    the reasons; never that of the metadata log.
    """

    cluster_id: str
    directory_ids: Mapping[str, Uuid]
    offline: Mapping[str, str] = field(default_factory=dict)


def check_directories(
    disk: Disk, config: ServerConfig, unusable: Mapping[str, str] | None = None
) -> NodeIdentity:
    """The identity in the directory of the metadata log, and which others can be used with it.

    One that cannot be read costs only its replicas (and so does an ``unusable`` one, which has a reason
    already). :class:`ConfigError` for mistakes: a directory that is not formatted, belongs to another node or
    cluster, or is a copy of another one; and if a broker has no directory that can be used.
    """
    metadata_dir = config.metadata_log_dir
    own = _check_formatted(read_directory(disk, metadata_dir), config, metadata_dir)
    directory_ids = {metadata_dir: own.directory_id}
    offline = dict(unusable or {})
    for path in config.all_dirs:
        if path == config.metadata_log_dir:
            continue
        if disk.exists(path) and not disk.is_dir(path):
            offline[path] = "it is not a directory"
        if path in offline:
            continue
        try:
            found = read_directory(disk, path)
        except ConfigError as error:
            offline[path] = str(error)
            continue
        properties = _check_formatted(found, config, path)
        if properties.cluster_id != own.cluster_id:
            raise ConfigError(
                f"{path} belongs to cluster {properties.cluster_id}, other directories to {own.cluster_id};"
                " `pykraft storage info -c server.properties` shows what is there"
            )
        if properties.directory_id in directory_ids.values():
            raise ConfigError(
                f"{path} has the directory id {uuid_to_str(properties.directory_id)} of another directory"
            )
        directory_ids[path] = properties.directory_id
        if disk.exists(f"{path}/{METADATA_LOG_DIRECTORY}"):
            raise ConfigError(
                f"{path} holds a metadata log, but metadata.log.dir is {config.metadata_log_dir}"
            )
    if config.is_broker and all(path in offline for path in config.log_dirs):
        reasons = "; ".join(f"{path}: {offline[path]}" for path in config.log_dirs)
        raise ConfigError(f"no log directory can be used: {reasons}")
    metadata_log = f"{config.metadata_log_dir}/{METADATA_LOG_DIRECTORY}"
    if config.is_controller and not (disk.is_dir(metadata_log) and disk.list(metadata_log)):
        # An empty log would be a different replica under this one's id: it has lost its votes. (A broker
        # casts none, and fetches its log again.)
        raise ConfigError(
            f"{config.metadata_log_dir} is formatted, but its metadata log is lost: {metadata_log} is missing"
            " or empty; restore it, or remove it and the meta.properties beside it (partitions may be"
            " there, too), format with --ignore-formatted, and make it a voter in place of the old one"
        )
    return NodeIdentity(own.cluster_id, directory_ids, offline)


def _check_formatted(properties: MetaProperties | None, config: ServerConfig, path: str) -> MetaProperties:
    """The properties of a directory of this node, or the :class:`ConfigError` that says what to do."""
    if properties is None:
        raise ConfigError(
            f"{path} is not formatted: run `pykraft storage format -t CLUSTER_ID -c server.properties`"
            " first (`pykraft storage random-uuid` makes a cluster id)"
        )
    if properties.node_id != config.node_id:
        raise ConfigError(
            f"{path} belongs to node {properties.node_id}, but node.id is {config.node_id};"
            " `pykraft storage info -c server.properties` shows what is there"
        )
    return properties
