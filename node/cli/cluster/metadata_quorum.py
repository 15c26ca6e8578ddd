"""``pykraft metadata-quorum``, with the flags and labels of kafka-metadata-quorum."""

from __future__ import annotations

import json
from dataclasses import replace

import click

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_client.results import QuorumDescription, QuorumReplica
from pykraft.kafka_protocol.ids import ZERO_UUID, uuid_from_str, uuid_to_str
from pykraft.node.cli.files.storage import read_config
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import (
    json_key,
    json_option,
    print_done,
    print_json,
    print_table,
    wants_json,
)
from pykraft.node.format import read_directory
from pykraft.runtime.address import Address
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.os_disk import OsDisk

_LABEL = 24
"""The width of the labels of a status, as in Kafka's tool."""
_CHANGE_TIMEOUT_MS = 60_000
"""The request returns only when the new voter has caught up."""
_dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="Only print what would be done.")


@click.group()
@cluster_options(controllers=True)
@click.pass_context
def command(context: click.Context, /, target: Target) -> None:
    """Describe the metadata quorum, or change its voters, through any broker or controller."""
    context.obj = target


@command.command()
@click.option("--status", is_flag=True, help="The leader, the end of the log, and the voters.")
@click.option("--replication", is_flag=True, help="The log end and lag of each replica.")
@click.option("--human-readable", "-hr", is_flag=True, help="With --replication: how long ago, not times.")
@json_option
@click.pass_obj
def describe(target: Target, status: bool, replication: bool, human_readable: bool) -> None:
    """Describe the quorum."""
    if status == replication:
        raise click.UsageError("give exactly one of --status, --replication")
    if human_readable and not replication:
        raise click.UsageError("--human-readable needs --replication")
    with target.client() as client:
        quorum = client.describe_quorum()
        if replication:
            _print_replication(quorum, SystemClock().wall_ms() if human_readable else None)
        else:
            cluster_id = client.describe_cluster(controllers=target.is_controllers).cluster_id
            _print_status(cluster_id, quorum)


def _print_status(cluster_id: str, quorum: QuorumDescription) -> None:
    followers = [voter for voter in quorum.voters if voter.replica_id != quorum.leader_id]
    # A leader that is being removed is no longer a voter.
    leader = next((voter for voter in quorum.voters if voter.replica_id == quorum.leader_id), None)
    end_offset = quorum.high_watermark if leader is None else leader.log_end_offset
    lags = [max(end_offset - voter.log_end_offset, 0) for voter in followers]
    status: dict[str, object] = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": max(lags, default=0),
        "MaxFollowerLagTimeMs": max((_lag_time_ms(leader, voter) for voter in followers), default=0),
        "CurrentVoters": [_replica(quorum, voter) for voter in quorum.voters],
        "CurrentObservers": [_replica(quorum, observer) for observer in quorum.observers],
    }
    if wants_json():
        print_json({json_key(label): value for label, value in status.items()})
        return
    for label, value in status.items():
        text = json.dumps(value) if isinstance(value, list) else str(value)
        click.echo(f"{label + ':':<{_LABEL}}{text}")


def _lag_time_ms(leader: QuorumReplica | None, follower: QuorumReplica) -> int:
    """How long ago the follower had last caught up with the leader; -1 if it never had."""
    if (
        leader is None
        or leader.last_caught_up_timestamp_ms is None
        or follower.last_caught_up_timestamp_ms is None
    ):
        return -1
    return max(leader.last_caught_up_timestamp_ms - follower.last_caught_up_timestamp_ms, 0)


def _replica(quorum: QuorumDescription, replica: QuorumReplica) -> dict[str, object]:
    shown: dict[str, object] = {"id": replica.replica_id}
    if replica.directory_id != ZERO_UUID:
        shown["directoryId"] = uuid_to_str(replica.directory_id)
    endpoints = [
        f"{name}://{address.host}:{address.port}"
        for name, address in sorted(quorum.nodes.get(replica.replica_id, {}).items())
    ]
    if endpoints:
        shown["endpoints"] = endpoints
    return shown


def _print_replication(quorum: QuorumDescription, now_ms: int | None) -> None:
    leaders = [it for it in quorum.voters if it.replica_id == quorum.leader_id]
    followers = [it for it in quorum.voters if it.replica_id != quorum.leader_id]
    ranked = {"Leader": leaders, "Follower": followers, "Observer": quorum.observers}
    end = max((voter.log_end_offset for voter in leaders or quorum.voters), default=0)
    rows = [
        (
            it.replica_id,
            uuid_to_str(it.directory_id),
            it.log_end_offset,
            max(end - it.log_end_offset, 0),
            _time(it.last_fetch_timestamp_ms, now_ms),
            _time(it.last_caught_up_timestamp_ms, now_ms),
            status,
        )
        for status, replicas in ranked.items()
        for it in replicas
    ]
    columns = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp")
    print_table((*columns, "Status"), rows, tabs=True)


def _time(timestamp_ms: int | None, now_ms: int | None) -> object:
    """A time in Kafka's form: -1 if unknown, and relative to ``now_ms`` if that is given."""
    if timestamp_ms is None:
        return -1
    return timestamp_ms if now_ms is None else f"{max(now_ms - timestamp_ms, 0)} ms ago"


@command.command("add-controller")
@click.option("-c", "--config", "config_path", metavar="FILE", help="The new controller's properties.")
@_dry_run_option
@json_option
@click.pass_obj
def add_controller(target: Target, config_path: str | None, dry_run: bool) -> None:
    """Add a controller that follows the quorum as a voter.

    Run it where the controller's formatted directories are: its directory id is read from there. As in Kafka,
    --command-config may name the file, too.
    """
    path = config_path or target.command_config
    if path is None:
        raise click.UsageError("give the new controller's properties with --config FILE")
    config = read_config(path)
    address, listener = config.controller_address, config.controller_listener
    if not config.is_controller or listener is None:
        raise ConfigError(f"{path}: process.roles does not include controller")
    if address is None:
        raise ConfigError(
            f"{path}: the other voters need this controller's address: give listener {listener.name} a host"
        )
    formatted = read_directory(OsDisk(), config.metadata_log_dir)
    if formatted is None:
        raise ConfigError(f"{config.metadata_log_dir} is not formatted")
    if not dry_run:
        with replace(target, command_config=None).client(_CHANGE_TIMEOUT_MS) as client:
            endpoints = {listener.name: Address(address.host, address.port)}
            client.add_raft_voter(config.node_id, formatted.directory_id, endpoints)
    directory_id, endpoint = uuid_to_str(formatted.directory_id), f"{listener.name}://{address}"
    print_done(
        f"{'DRY RUN of adding' if dry_run else 'Added'} controller {config.node_id} with directory id"
        f" {directory_id} and endpoints: {endpoint}",
        controllerId=config.node_id,
        directoryId=directory_id,
        endpoints=[endpoint],
        dryRun=dry_run,
    )


@command.command("remove-controller")
@click.option("-i", "--controller-id", required=True, type=click.IntRange(min=0), help="Its node id.")
@click.option("-d", "--controller-directory-id", required=True, help="The directory id it votes with.")
@_dry_run_option
@json_option
@click.pass_obj
def remove_controller(
    target: Target, controller_id: int, controller_directory_id: str, dry_run: bool
) -> None:
    """Remove a controller from the voters; it continues as an observer until it is stopped."""
    try:
        directory_id = uuid_from_str(controller_directory_id)
    except ValueError as error:
        raise click.UsageError(f"--controller-directory-id: {error}") from None
    if not dry_run:
        with target.client(_CHANGE_TIMEOUT_MS) as client:
            client.remove_raft_voter(controller_id, directory_id)
    print_done(
        f"{'DRY RUN of removing' if dry_run else 'Removed'} KRaft controller {controller_id} with directory id"
        f" {uuid_to_str(directory_id)}",
        controllerId=controller_id,
        directoryId=uuid_to_str(directory_id),
        dryRun=dry_run,
    )
