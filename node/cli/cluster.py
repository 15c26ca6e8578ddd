"""``pykraft cluster``, with the commands, flags and columns of kafka-cluster."""

from __future__ import annotations

import click

from pykraft.node.cli.cluster_client import admin_client
from pykraft.node.cli.common import bootstrap_option, json_option, print_json, print_table, wants_json


@click.group()
def command() -> None:
    """List the brokers of a cluster, and unregister one that will not come back."""


@command.command("cluster-id")
@bootstrap_option
@json_option
def cluster_id(bootstrap_server: str) -> None:
    """Print the cluster's id."""
    with admin_client(bootstrap_server) as client:
        found = client.describe_cluster().cluster_id
    if wants_json():
        print_json({"clusterId": found})
    else:
        click.echo(f"Cluster ID: {found}")


@command.command("list-endpoints")
@bootstrap_option
@click.option(
    "--include-fenced-brokers", is_flag=True, help="Also those that are down, or have not caught up yet."
)
@json_option
def list_endpoints(bootstrap_server: str, include_fenced_brokers: bool) -> None:
    """Show the listeners of brokers."""
    with admin_client(bootstrap_server) as client:
        known = client.describe_cluster(include_fenced_brokers=include_fenced_brokers)
    rows = [
        (broker.id, broker.host, broker.port, broker.rack, "fenced" if broker.is_fenced else "unfenced", "broker")
        for broker in known.brokers
    ]  # fmt: skip
    print_table(("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"), rows)


@command.command()
@bootstrap_option
@click.option("--id", "broker_id", type=click.IntRange(min=0), required=True, help="The broker's node id.")
def unregister(bootstrap_server: str, broker_id: int) -> None:
    """Unregister a broker that will not come back; it must be fenced."""
    with admin_client(bootstrap_server) as client:
        client.unregister_broker(broker_id)
    click.echo(f"Broker {broker_id} is no longer registered.")
