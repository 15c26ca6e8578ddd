"""What the client commands share: the bootstrap option, ``key=value`` options, plain tables."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.network import parse_bootstrap_servers

_REACH_TIMEOUT_S = 5.0
_REACH_RETRY_S = 0.1

bootstrap_option = click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT,…", help="One or more brokers to start from."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


@contextlib.contextmanager
def admin_client(bootstrap_server: str) -> Iterator[AdminClient]:
    """An admin client; a malformed address is a usage error."""
    try:
        _check_reachable(bootstrap_server)
        client = AdminClient(bootstrap_server)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with client:
        yield client


def _check_reachable(bootstrap_server: str) -> None:
    """The client itself would go on trying for a minute, in case the cluster is just starting."""
    deadline = time.monotonic() + _REACH_TIMEOUT_S
    while True:
        for address in parse_bootstrap_servers(bootstrap_server):
            with contextlib.suppress(OSError):
                left = max(deadline - time.monotonic(), _REACH_RETRY_S)
                socket.create_connection((address.host, address.port), timeout=left).close()
                return
        if time.monotonic() >= deadline:
            raise click.ClickException(f"nobody listens at {bootstrap_server}")
        time.sleep(_REACH_RETRY_S)


def pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """``key=value`` options as a dictionary."""
    parsed = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{option} {item!r} is not key=value")
        parsed[key.strip()] = value
    return parsed


def one_action(chosen: Mapping[str, bool]) -> str:
    """The single action among flags; a usage error if there is none or more than one."""
    names = [name for name, given in chosen.items() if given]
    if len(names) != 1:
        raise click.UsageError("give exactly one of " + ", ".join(f"--{name}" for name in chosen))
    return names[0]


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], as_json: bool = False) -> None:
    """Columns aligned as Kafka's tools align them, or a JSON array of objects."""
    if as_json:
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]))
        return
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(line[n]) for line in [list(columns), *texts]) for n in range(len(columns))]
    for line in [list(columns), *texts]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
