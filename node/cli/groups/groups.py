"""``pykraft groups``, with the flags and the columns of kafka-groups: groups of every type.

Whatever else is asked is done by ``pykraft consumer-groups``, whose options all work here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from click.core import ParameterSource

from pykraft.kafka_client.results import GroupListing
from pykraft.kafka_protocol.consumer_protocol import PROTOCOL_TYPE
from pykraft.node.cli.groups import consumer_groups
from pykraft.node.cli.shared.cluster_client import Target, receives_target
from pykraft.node.cli.shared.common import print_json, wants_json

_TYPES: Final = ("classic", "consumer", "share", "streams")
_FILTERS: Final = ("group_type", "protocol", "consumer", "share", "streams")
_LIST_HAS: Final = frozenset(
    {"list", "bootstrap_server", "command_config", "timeout_ms", "json", "version", *_FILTERS}
)
_COLUMN: Final = 20


@click.command(params=list(consumer_groups.command.params))
@receives_target
@click.option(
    "--group-type", type=click.Choice(_TYPES, case_sensitive=False), help="List: only groups of this type."
)
@click.option("--protocol", metavar="TYPE", help="List: only groups of this protocol type.")
@click.option("--consumer", is_flag=True, help="List: only groups of consumers, of either protocol.")
@click.option("--share", is_flag=True, help="List: only share groups; there are none yet.")
@click.option(
    "--streams", is_flag=True, help="List: only groups of the streams protocol; there are none yet."
)
@click.pass_context
def command(context: click.Context, /, target: Target, **given: Any) -> None:
    """List groups of every type; as consumer-groups, describe and change groups of consumers."""
    filters = {name: given.pop(name) for name in _FILTERS}
    chosen = [name for name, value in filters.items() if value]
    others = [it for it in context.params if it not in _LIST_HAS and _is_given(context, it)]
    if chosen and (others or not given["list"]):
        raise click.UsageError(f"--{chosen[0].replace('_', '-')} is an option of --list alone")
    if not given["list"] or others:
        consumer_groups.run(target, given)
        return
    kinds = [name for name in chosen if name not in ("group_type", "protocol")]
    if kinds and len(chosen) > 1:
        raise click.UsageError(f"--{kinds[0]} can't be used with another filter")
    with target.client(given["timeout_ms"]) as client:
        found = client.list_groups()
    _print([it for it in sorted(found, key=lambda it: it.group_id) if _passes(it, filters)])


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _passes(group: GroupListing, filters: Mapping[str, Any]) -> bool:
    kind = group.type.lower()
    if filters["consumer"]:
        return group.protocol_type in (PROTOCOL_TYPE, "") or kind == "consumer"
    if filters["share"] or filters["streams"]:
        return kind == ("share" if filters["share"] else "streams")
    return (filters["group_type"] or kind) == kind and (
        filters["protocol"] is None or filters["protocol"] == group.protocol_type
    )


def _print(groups: Sequence[GroupListing]) -> None:
    if wants_json():
        print_json(
            [
                {"group": it.group_id, "type": it.type, "protocol": it.protocol_type, "state": it.state}
                for it in groups
            ]
        )
        return
    rows = [(it.group_id, it.type.capitalize(), it.protocol_type) for it in groups]
    width = max([_COLUMN, *(len(cell) for row in rows for cell in row)])
    click.echo(" ".join(name.ljust(width) for name in ("GROUP", "TYPE", "PROTOCOL")))
    for row in rows:
        click.echo("".join(f"{cell:{width}} " for cell in row))
