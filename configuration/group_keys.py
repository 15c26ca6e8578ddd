"""Configurations of single groups (resource type GROUP), all of Kafka 4.3.

A group uses the value that was set for it, or else the server property. Those of share and streams groups are
kept and described for tools; pykraft has no such groups yet.
"""

from __future__ import annotations

from typing import Final

from pykraft.configuration.kafka_keys import STATIC_KEYS, STORED_KEYS
from pykraft.configuration.keys import BOOLEAN, STRING, ConfigKey, Validator, at_least, one_of, table
from pykraft.configuration.server_keys import COORDINATOR_KEYS
from pykraft.lazy_dataclass import dataclass

_SERVER_KEYS: Final = {**STATIC_KEYS, **STORED_KEYS, **COORDINATOR_KEYS}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey(ConfigKey):
    """A group's key, with the server property that applies if it is not set, and those that limit it."""

    server_property: str | None = None
    least_property: str | None = None
    most_property: str | None = None


def _key(name: str, documentation: str, validator: Validator) -> GroupKey:
    """A key like a server property, between its minimum and its maximum as far as there are such."""
    protocol, _, rest = name.partition(".")
    server = _SERVER_KEYS[f"group.{name}"]
    least, most = f"group.{protocol}.min.{rest}", f"group.{protocol}.max.{rest.removeprefix('num.')}"
    return GroupKey(
        name,
        server.type,
        server.default,
        documentation,
        validator,
        server_property=server.name,
        least_property=least if least in _SERVER_KEYS else None,
        most_property=most if most in _SERVER_KEYS else None,
    )


_RESETS: Final = Validator(
    "earliest, latest or by_duration:PnDTnHnMn.nS",
    lambda value: (
        None
        if str(value) in ("earliest", "latest") or str(value).startswith("by_duration:P")
        else "it is no strategy"
    ),
)

SESSION_TIMEOUT_MS: Final = _key(
    "consumer.session.timeout.ms",
    "The session timeout of the group's members with the consumer protocol.",
    at_least(1),
)
HEARTBEAT_INTERVAL_MS: Final = _key(
    "consumer.heartbeat.interval.ms",
    "The heartbeat interval of the group's members with the consumer protocol.",
    at_least(1),
)
ASSIGNMENT_INTERVAL_MS: Final = _key(
    "consumer.assignment.interval.ms",
    "The shortest time between two assignments of the group (KIP-1263); 0 for none.",
    at_least(0),
)
GROUP_KEYS: Final = table(
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    ASSIGNMENT_INTERVAL_MS,
    _key("share.heartbeat.interval.ms", "The heartbeat interval of a share group.", at_least(1)),
    _key("share.session.timeout.ms", "The session timeout of a share group.", at_least(1)),
    _key("share.record.lock.duration.ms", "How long a member of a share group holds a record.", at_least(1_000)),
    _key("share.delivery.count.limit", "The most deliveries of a record to a share group.", at_least(2)),
    _key("share.partition.max.record.locks", "Records of a partition that a share group may lock.", at_least(100)),
    GroupKey("share.auto.offset.reset", STRING, "latest", "Where a share group starts to read.", _RESETS),
    GroupKey("share.isolation.level", STRING, "read_uncommitted", "Whether a share group reads records of open and aborted transactions.", one_of("read_committed", "read_uncommitted")),
    GroupKey("share.renew.acknowledge.enable", BOOLEAN, "true", "Whether members of a share group may renew locks."),
    _key("share.assignment.interval.ms", "The shortest time between two assignments of a share group.", at_least(0)),
    _key("streams.heartbeat.interval.ms", "The heartbeat interval of a streams group.", at_least(1)),
    _key("streams.session.timeout.ms", "The session timeout of a streams group.", at_least(1)),
    _key("streams.num.standby.replicas", "Standby replicas of a task in a streams group.", at_least(0)),
    _key("streams.initial.rebalance.delay.ms", "How long an empty streams group waits for more members.", at_least(0)),
    _key("streams.assignment.interval.ms", "The shortest time between two assignments of a streams group.", at_least(0)),
)  # fmt: skip
