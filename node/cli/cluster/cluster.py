"""``pykraft cluster``, with the commands, flags and columns of kafka-cluster."""

from __future__ import annotations

import click

from pykraft.kafka_client.results import BrokerDescription
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import json_option, print_columns, print_done

_with_cluster = cluster_options(
    names={
        "--bootstrap-server": ("-b",),
        "--bootstrap-controller": ("-C",),
        "--command-config": ("--config", "-c"),
    },
    controllers=True,
)


@click.group()
def command() -> None:
    """List the brokers of a cluster, and unregister one that will not come back."""


@command.command("cluster-id")
@_with_cluster
@json_option
def cluster_id(target: Target) -> None:
    """Print the cluster's id."""
    with target.client() as client:
        found = client.describe_cluster(controllers=target.is_controllers).cluster_id
    print_done(f"Cluster ID: {found}", clusterId=found)


@command.command("list-endpoints")
@_with_cluster
@click.option(
    "--include-fenced-brokers", is_flag=True, help="Also those that are down, or have not caught up yet."
)
@json_option
def list_endpoints(target: Target, include_fenced_brokers: bool) -> None:
    """Show the listeners of brokers, or with --bootstrap-controller of controllers."""
    if include_fenced_brokers and target.is_controllers:
        raise click.UsageError("--include-fenced-brokers is an option for --bootstrap-server")
    with target.client() as client:
        known = client.describe_cluster(
            include_fenced_brokers=include_fenced_brokers, controllers=target.is_controllers
        )
    is_broker = not target.is_controllers
    columns = ["ID", "HOST", "PORT", "RACK", *(["STATE"] if is_broker else []), "ENDPOINT_TYPE"]
    rows = [[it.id, it.host, it.port, it.rack, *_kind(it, is_broker)] for it in known.brokers]
    host = max((len(it.host) for it in known.brokers), default=0)
    rack = max((len(it.rack) for it in known.brokers if it.rack), default=10)
    print_columns(columns, rows, [10, host, 10, rack, *([10] if is_broker else []), 15])


def _kind(node: BrokerDescription, is_broker: bool) -> list[str]:
    if not is_broker:
        return ["controller"]
    return ["fenced" if node.is_fenced else "unfenced", "broker"]


@command.command()
@_with_cluster
@click.option("--id", "-i", "broker_id", type=click.IntRange(min=0), required=True, help="The node id.")
@json_option
def unregister(target: Target, broker_id: int) -> None:
    """Unregister a broker that will not come back; it must be fenced."""
    with target.client() as client:
        client.unregister_broker(broker_id)
    print_done(f"Broker {broker_id} is no longer registered.", unregistered=broker_id)
