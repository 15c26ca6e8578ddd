"""``pykraft consumer-groups``, with the flags, the refusals and the output lines of kafka-consumer-groups.

The status is Kafka's, too: only wrong options end with another one than 0. What cannot be described, changed
or deleted is reported on standard error, in the words of Kafka's tool without those of Java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_protocol.consumer_protocol import PROTOCOL_TYPE
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.groups.changes import delete_groups, delete_offsets
from pykraft.node.cli.groups.descriptions import describe_members, describe_offsets, describe_states
from pykraft.node.cli.groups.reset import SCENARIOS, Reset, ResetError, reset_offsets
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import FC, json_option, print_done, print_json, wants_json
from pykraft.node.cli.shared.tool_errors import report
from pykraft.regex.pattern import RegexError, compile_pattern

_STATES: Final = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling"),
)
_TYPES: Final = ("Classic", "Consumer")
_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
_CONSUMERS: Final = ("", PROTOCOL_TYPE)
"""The protocol types of the groups of consumers, and of clients that only commit."""
Has = Callable[[str], bool]


def _flag(name: str, text: str) -> Callable[[FC], FC]:
    return click.option(f"--{name}", name.replace("-", "_"), is_flag=True, help=text)


def _optional(name: str, text: str) -> Callable[[FC], FC]:
    return click.option(f"--{name}", is_flag=False, flag_value="", default=None, metavar="[…]", help=text)


@click.command()
@cluster_options()
@_flag("list", "List the groups of consumers.")
@_flag("describe", "Show offsets and lag (the default), members or the state of groups.")
@_flag("delete", "Delete groups that have no members, and their offsets.")
@_flag("reset-offsets", "Set the offsets of groups that have no members. One of the --to options, --shift-by, "
       "--by-duration or --from-file says where; --all-topics or --topic, of which partitions.")  # fmt: skip
@_flag("delete-offsets", "Delete a group's offsets of the topics that --topic names.")
@click.option(
    "--validate-regex", metavar="REGEX", help="Tell whether a subscription may have this expression."
)
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group; repeatable.")
@_flag("all-groups", "Every group of consumers.")
@_flag("members", "Describe: the members.")
@_flag("offsets", "Describe: the offsets and the lag.")
@_optional(
    "state", "Describe: the state. List: with states, or only groups in these states, as stable,empty."
)
@_optional("type", "List: with types, or only groups of these types, as classic,consumer.")
@_flag("verbose", "Describe: more columns.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1]",
              help="A topic, or some partitions of it; repeatable.")  # fmt: skip
@_flag("all-topics", "Every partition for which the group has an offset.")
@_flag("to-earliest", "Reset to the first record.")
@_flag("to-latest", "Reset to the end.")
@_flag("to-current", "Reset to the offset that is committed; to the end if there is none.")
@click.option("--to-offset", type=int, metavar="OFFSET", help="Reset to this offset.")
@click.option("--shift-by", type=int, metavar="NUMBER", help="Reset forwards, or backwards if negative.")
@click.option("--to-datetime", metavar="TIME",
              help="Reset to the first record since YYYY-MM-DDThh:mm:ss.sss, UTC or with its offset.")  # fmt: skip
@click.option("--by-duration", metavar="DURATION", help="Reset to the first record of the last PnDTnHnMnS.")
@click.option("--from-file", metavar="FILE", help="Reset to the offsets in a file as --export prints it.")
@_flag("dry-run", "Only show the new offsets (the default).")
@_flag("execute", "Set the new offsets.")
@_flag("export", "Print the new offsets as CSV.")
@click.option("--timeout", "timeout_ms", type=click.IntRange(min=0), default=30_000, show_default=True,
              metavar="MS", help="How long each request may take.")  # fmt: skip
@json_option
def command(target: Target, **given: Any) -> None:
    """List, describe and delete groups of consumers; reset and delete their offsets."""
    run(target, given)


def run(target: Target, given: Mapping[str, Any]) -> None:
    """The command, with its options as :mod:`click` has parsed them."""
    action = _checked(given)
    if action == "validate-regex":
        _validate_regex(given["validate_regex"])
        return
    states, types = _chosen(given["state"], _STATES, "state"), _chosen(given["type"], _TYPES, "types")
    reset = Reset.planned(given) if action == "reset-offsets" else None
    with target.client(given["timeout_ms"]) as client:
        try:
            if action == "list":
                _list(client, states, types, given)
                return
            names = _all_groups(client) if given["all_groups"] else list(dict.fromkeys(given["groups"]))
            if action == "describe":
                _describe(client, names, given)
            elif action == "delete":
                delete_groups(client, names)
            elif action == "delete-offsets":
                delete_offsets(client, names[0], given["topics"])
            else:
                assert reset is not None
                reset_offsets(client, names, reset)
        except (ResetError, KafkaError) as error:
            reason = error.message if isinstance(error, KafkaError) else str(error)
            report([f"Executing consumer group command failed due to {reason}"])


def _list(client: AdminClient, states: Sequence[str], types: Sequence[str], given: Mapping[str, Any]) -> None:
    found = client.list_groups(states, types or _TYPES, _CONSUMERS)
    if wants_json():
        print_json([{"group": it.group_id, "type": it.type, "state": it.state} for it in found])
        return
    if given["state"] is None and given["type"] is None:
        for it in found:
            click.echo(it.group_id)
        return
    width = max([15, *(len(it.group_id) for it in found)]) + 10
    rows = [("GROUP", "TYPE", "STATE"), *((it.group_id, it.type.capitalize(), it.state) for it in found)]
    for group_id, kind, state in rows:
        line = group_id.ljust(width)
        line += f" {kind:20}" if given["type"] is not None else ""
        line += f" {state:20}" if given["state"] is not None else ""
        click.echo(line)


def _describe(client: AdminClient, names: Sequence[str], given: Mapping[str, Any]) -> None:
    described = []
    for name, group in client.describe_groups(names).items():
        if isinstance(group, KafkaError):
            raise group
        if group.protocol_type not in _CONSUMERS:
            raise ResetError(f"GroupId {name} is not a consumer group ({group.protocol_type}).")
        described.append(group)
    described.sort(key=lambda group: group.group_id)
    if given["members"]:
        describe_members(described, given["verbose"])
    elif given["state"] is not None:
        describe_states(described, given["verbose"])
    else:
        describe_offsets(client, described, given["verbose"])


def _all_groups(client: AdminClient) -> list[str]:
    return [it.group_id for it in client.list_groups((), _TYPES, _CONSUMERS)]


def _validate_regex(regex: str) -> None:
    try:
        compile_pattern(regex)
        reason = None
    except RegexError as error:
        reason = str(error)
    said = "valid." if reason is None else f"invalid: {reason}."
    print_done(f"The regular expression `{regex}` is {said}", valid=reason is None, reason=reason)


def _chosen(text: str | None, known: Sequence[str], what: str) -> list[str]:
    """The names in a list that is separated by commas, in any case, as they are written by brokers."""
    by_name = {name.lower(): name for name in known}
    chosen = [name.strip().lower() for name in text.split(",")] if text else []
    if not all(name in by_name for name in chosen):
        raise click.UsageError(
            f"Invalid {what} list '{text}'. Valid {what.rstrip('s')}s are: {', '.join(known)}"
        )
    return [by_name[name] for name in chosen]


def _checked(given: Mapping[str, Any]) -> str:
    """The action; :class:`click.UsageError` for options that do not go together, as Kafka's tool has it."""

    def has(name: str) -> bool:
        value = given[{"group": "groups", "topic": "topics"}.get(name, name).replace("-", "_")]
        return not (value is None or value is False or value == ())

    def refuse(name: str, others: Sequence[str]) -> None:
        for other in others:
            if has(name) and other != name and has(other):
                raise click.UsageError(f'Option "[{name}]" can\'t be used with option "[{other}]"')

    def need_groups(action: str) -> None:
        if not has("group") and not has("all-groups"):
            raise click.UsageError(f"Option [{action}] takes one of these options: [group], [all-groups]")

    for name, needed in _ONLY_WITH.items():
        if has(name) and not any(has(action) for action in needed):
            raise click.UsageError(
                f"Option(s) [{name}] are unavailable given other options on the command line"
            )
    if has("describe"):
        need_groups("describe")
        _check_describe(has, takes_value=bool(given["state"]))
    if has("delete"):
        need_groups("delete")
    _check_topics(has)
    if has("reset-offsets"):
        _check_reset(has, refuse, need_groups)
    refuse("group", ("all-groups", "list"))
    refuse("topic", ("list", "describe"))
    chosen = [name for name in _ACTIONS if has(name)]
    if len(chosen) != 1:
        names = ", ".join(f"--{name}" for name in _ACTIONS)
        raise click.UsageError(f"Command must include exactly one action: {names}")
    if chosen[0] == "delete-offsets" and len(given["groups"]) > 1:
        raise click.UsageError("Found multiple arguments for option group, but you asked for only one")
    return chosen[0]


def _check_topics(has: Has) -> None:
    if has("delete") and has("topic"):
        raise click.UsageError(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )
    if has("delete-offsets") and not (has("group") and has("topic")):
        raise click.UsageError("Option [delete-offsets] takes the following options: [group], [topic]")


def _check_describe(has: Has, *, takes_value: bool) -> None:
    if sum(map(has, ("members", "offsets", "state"))) > 1:
        raise click.UsageError(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if takes_value:
        raise click.UsageError("Option [describe] does not take a value for [state]")


_ONLY_WITH: Final = {
    **dict.fromkeys(("members", "verbose", "offsets"), ("describe",)),
    "state": ("describe", "list"),
    "type": ("list",),
}


def _check_reset(
    has: Has, refuse: Callable[[str, Sequence[str]], None], need_groups: Callable[[str], None]
) -> None:
    if has("dry-run") and has("execute"):
        raise click.UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    need_groups("reset-offsets")
    for name in SCENARIOS:
        refuse(name, SCENARIOS)
    if not any(map(has, SCENARIOS)):
        scenarios = ", ".join(f"[{name}]" for name in SCENARIOS)
        raise click.UsageError(
            f"Option '[reset-offsets]' requires one of the following scenarios: [{scenarios}]"
        )
    if not (has("all-topics") or has("topic") or has("from-file")):
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    if not has("dry-run") and not has("execute"):
        click.echo("WARN: No action will be performed as the --execute option is missing.", err=True)
