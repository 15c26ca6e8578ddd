"""``pykraft metadata-quorum``, with the labels of kafka-metadata-quorum."""

from __future__ import annotations

import json

import click

from pykraft.kafka_client.admin_results import QuorumDescription, QuorumReplica
from pykraft.kafka_protocol.ids import ZERO_UUID, uuid_to_str
from pykraft.node.cli.common import admin_client, bootstrap_option, json_option, print_table


@click.group()
@bootstrap_option
@click.pass_context
def command(context: click.Context, bootstrap_server: str) -> None:
    """Look at the metadata quorum, through any broker."""
    context.obj = bootstrap_server


@command.command()
@click.option("--status", is_flag=True, help="Who leads, how far the log is, who votes.")
@click.option("--replication", is_flag=True, help="How far each replica is.")
@json_option
@click.pass_obj
def describe(bootstrap_server: str, status: bool, replication: bool, as_json: bool) -> None:
    """Describe the quorum."""
    if status == replication:
        raise click.UsageError("give exactly one of --status, --replication")
    with admin_client(bootstrap_server) as client:
        quorum = client.describe_quorum()
        if replication:
            _print_replication(quorum, as_json)
        else:
            _print_status(client.describe_cluster().cluster_id, quorum, as_json)


def _print_status(cluster_id: str, quorum: QuorumDescription, as_json: bool) -> None:
    followers = [voter for voter in quorum.voters if voter.replica_id != quorum.leader_id]
    leader = next(voter for voter in quorum.voters if voter.replica_id == quorum.leader_id)
    lags = [max(leader.log_end_offset - voter.log_end_offset, 0) for voter in followers]
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
    if as_json:
        click.echo(json.dumps(status))
        return
    width = max(map(len, status)) + 2
    for label, value in status.items():
        text = json.dumps(value) if isinstance(value, list) else str(value)
        click.echo(f"{label + ':':<{width}}{text}")


def _lag_time_ms(leader: QuorumReplica, follower: QuorumReplica) -> int:
    """How long ago the follower was last level with the leader; -1 if it never was."""
    if leader.last_caught_up_timestamp_ms is None or follower.last_caught_up_timestamp_ms is None:
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


def _print_replication(quorum: QuorumDescription, as_json: bool) -> None:
    end = max((voter.log_end_offset for voter in quorum.voters), default=0)
    rows = []
    for replica, role in [(voter, "Follower") for voter in quorum.voters] + [
        (observer, "Observer") for observer in quorum.observers
    ]:
        rows.append(
            (
                replica.replica_id,
                uuid_to_str(replica.directory_id),
                replica.log_end_offset,
                max(end - replica.log_end_offset, 0),
                -1 if replica.last_fetch_timestamp_ms is None else replica.last_fetch_timestamp_ms,
                -1 if replica.last_caught_up_timestamp_ms is None else replica.last_caught_up_timestamp_ms,
                "Leader" if replica.replica_id == quorum.leader_id else role,
            )
        )
    columns = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp")
    print_table((*columns, "Status"), rows, as_json)
