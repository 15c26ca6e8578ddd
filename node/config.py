"""A server.properties file, read, checked and converted into the configuration of a node.

Every invalid property is refused here by its name, before anything is opened.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from pykraft.broker.config import ListenerConfig
from pykraft.broker.logs.log_dirs import check_cordoned
from pykraft.configuration.keys import ConfigError, ConfigValue, format_value, resolve, unknown_key_message
from pykraft.configuration.properties import parse_properties
from pykraft.configuration.server_keys import KNOWN_NAMES, READ_KEYS, UNREAD_NAMES, topic_defaults
from pykraft.configuration.topic_keys import TOPIC_TO_SERVER_PROPERTY
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.broker_configs import CORDONED_LOG_DIRS
from pykraft.node.security import PLAINTEXT, check_protocols, check_security_keys, is_security_key
from pykraft.node.web.host_names import normal_name
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import MAX_PORT, Address, parse_address

logger = logging.getLogger(__name__)

_NODE_ID = re.compile("[0-9]{1,10}")
_PORT = re.compile("[0-9]{1,5}")
_EVERY_ADDRESS = ("", "0.0.0.0", "::")
_UNKNOWN_HOST = "localhost"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One node's configuration.

    ``values`` holds, typed, every server property that is read; ``given`` the text of those that are set.
    """

    values: Mapping[str, ConfigValue]
    given: Mapping[str, str]
    node_id: int
    roles: frozenset[str]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    broker_listeners: tuple[ListenerConfig, ...]
    controller_listener: ListenerConfig | None
    """The quorum's own listener: gRPC, the first of controller.listener.names."""
    controller_client_listeners: tuple[ListenerConfig, ...]
    """The others of controller.listener.names, for clients that use Kafka's protocol with the controller."""
    inter_broker_listener_name: str
    static_voters: VoterSet | None
    bootstrap_servers: tuple[Address, ...]
    topic_defaults: Mapping[str, str]

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def controller_address(self) -> Address | None:
        """The address at which the nodes of the quorum, this one among them, call this controller.

        With fixed voters it is in controller.quorum.voters. None if it is unknown: a listener on every
        address does not give one.
        """
        if self.static_voters is not None:
            voter = self.static_voters.get(self.node_id)
            return None if voter is None else voter.address
        listener = self.controller_listener
        if listener is None:
            return None
        if listener.host in _EVERY_ADDRESS and listener.advertised_host == _UNKNOWN_HOST:
            return None
        return Address(listener.advertised_host, listener.advertised_port)

    def integer(self, name: str) -> int:
        """The value of an integer property."""
        value = self.values[name]
        assert isinstance(value, int)
        return value

    @property
    def http_listener(self) -> Address | None:
        """Where metrics, health checks and the console are served. :class:`ConfigError` if it is none."""
        text = str(self.values["pykraft.http.listener"] or "")
        try:
            return parse_address(text, least_port=0) if text else None
        except ValueError as error:
            raise ConfigError(f"pykraft.http.listener: {error}") from None

    @property
    def http_hosts(self) -> frozenset[str]:
        """The names under which that is asked for: those given, and its own. :class:`ConfigError`."""
        names, listener = set[str](), self.http_listener
        if listener is not None:
            names.update(filter(None, [normal_name(listener.host)]))
        for given in _list(self.values, "pykraft.http.allowed.hosts"):
            name = normal_name(given)
            if name is None:
                raise ConfigError(f"pykraft.http.allowed.hosts: {given!r} is no host name (without a port)")
            names.add(name)
        return frozenset(names)

    @property
    def all_dirs(self) -> tuple[str, ...]:
        """Every directory that must be formatted, each once."""
        return tuple(dict.fromkeys((*self.log_dirs, self.metadata_log_dir)))


def load_server_config(text: str, overrides: Mapping[str, str] | None = None) -> ServerConfig:
    """Read and check ``.properties`` text. Raises :class:`ConfigError` that names the wrong property."""
    given = parse_properties(text) | dict(overrides or {})
    check_security_keys(given)
    _check_names(given)
    values = resolve(READ_KEYS, given)
    roles = frozenset(_list(values, "process.roles"))
    if not roles:
        raise ConfigError("process.roles is required: broker, controller or broker,controller")
    node_id = values["node.id"]
    if not isinstance(node_id, int):
        raise ConfigError("node.id is required")
    log_dirs = _list(values, "log.dirs") or _list(values, "log.dir")
    if not log_dirs:
        raise ConfigError("log.dirs or log.dir must name at least one directory")
    if len({path.rstrip("/") for path in log_dirs}) != len(log_dirs):
        raise ConfigError("log.dirs names a directory twice")
    if (objection := check_cordoned(_list(values, CORDONED_LOG_DIRS), log_dirs)) is not None:
        raise ConfigError(objection)
    listeners = _listeners(values, roles)
    voters = _static_voters(_list(values, "controller.quorum.voters"))
    _check_voters(voters, node_id, roles)
    _check_session(values, roles)
    config = ServerConfig(
        values=values,
        given=given
        | {name: format_value(values[name]) for name in given if name in values}
        | {"broker.id": str(node_id)},  # as in Kafka, for tools that use the older name
        node_id=node_id,
        roles=roles,
        log_dirs=log_dirs,
        metadata_log_dir=str(values["metadata.log.dir"] or log_dirs[0]),
        broker_listeners=listeners.brokers,
        controller_listener=listeners.controller,
        controller_client_listeners=listeners.controller_clients,
        inter_broker_listener_name=listeners.inter_broker,
        static_voters=voters,
        bootstrap_servers=_bootstrap_servers(_list(values, "controller.quorum.bootstrap.servers")),
        topic_defaults=topic_defaults(given),
    )
    _check_auto_join(config)
    _ = config.http_hosts  # refuses what is no name, and a listener that is not host:port
    if config.is_broker:
        GroupConfig.from_properties(values)  # refuses settings that contradict each other
    return config


def _check_session(values: Mapping[str, ConfigValue], roles: frozenset[str]) -> None:
    interval_ms, session_ms = values["broker.heartbeat.interval.ms"], values["broker.session.timeout.ms"]
    assert isinstance(interval_ms, int) and isinstance(session_ms, int)
    # A separate controller does not know the brokers' interval, and brokers do not know its session timeout.
    if len(roles) > 1 and interval_ms >= session_ms:
        raise ConfigError(
            f"broker.heartbeat.interval.ms ({interval_ms}) must be less than broker.session.timeout.ms"
            f" ({session_ms}): brokers would be fenced between two heartbeats"
        )


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name in UNREAD_NAMES or name.startswith("listener.name."):
            logger.warning("%s has no effect: pykraft does not use it", name)
        elif name not in KNOWN_NAMES:
            usable = {key for key in KNOWN_NAMES if not is_security_key(key)}
            raise ConfigError(unknown_key_message(name, usable, TOPIC_TO_SERVER_PROPERTY))


def _list(values: Mapping[str, ConfigValue], name: str) -> tuple[str, ...]:
    return cast("tuple[str, ...]", values[name] or ())


def parse_listener(text: str) -> tuple[str, str, int]:
    """``NAME://host:port`` → (name, host, port); the host may be empty or a bracketed IPv6 address."""
    name, separator, rest = text.partition("://")
    host, colon, port = rest.rpartition(":")
    if not separator or not colon or not name or not _PORT.fullmatch(port) or int(port) > MAX_PORT:
        raise ConfigError(f"{text!r} is not a listener: write NAME://host:port")
    return name.upper(), host.strip("[]"), int(port)


class _Listeners(NamedTuple):
    """The listeners, as in the fields of :class:`ServerConfig`."""

    brokers: tuple[ListenerConfig, ...]
    controller: ListenerConfig | None
    controller_clients: tuple[ListenerConfig, ...]
    inter_broker: str


def _listeners(values: Mapping[str, ConfigValue], roles: frozenset[str]) -> _Listeners:
    controller_names = [name.upper() for name in _list(values, "controller.listener.names")]
    if not controller_names:
        raise ConfigError("controller.listener.names is required (usually CONTROLLER)")
    given = _list(values, "listeners") or (() if "controller" in roles else ("PLAINTEXT://:9092",))
    if not given:
        raise ConfigError("listeners is required for a controller")
    advertised = {parsed[0]: parsed for parsed in map(parse_listener, _list(values, "advertised.listeners"))}
    parsed_listeners = [parse_listener(item) for item in given]
    check_protocols(
        _list(values, "listener.security.protocol.map"),
        [name for name, _, _ in parsed_listeners],
        controller_names,
    )
    listeners: dict[str, ListenerConfig] = {}
    for name, host, port in parsed_listeners:
        if name in listeners:
            raise ConfigError(f"listeners names {name} twice")
        _, advertised_host, advertised_port = advertised.get(name, (name, host, port))
        if advertised_host in _EVERY_ADDRESS:
            if name in advertised:
                raise ConfigError(f"advertised.listeners: {name} needs a host that clients can reach")
            advertised_host = _UNKNOWN_HOST
        listeners[name] = ListenerConfig(name, host, port, advertised_host, advertised_port, PLAINTEXT)
    unknown = sorted(advertised.keys() - listeners.keys())
    if unknown and "broker" in roles:
        raise ConfigError(f"advertised.listeners names {unknown[0]}, which is not in listeners")
    brokers = tuple(item for item in listeners.values() if item.name not in controller_names)
    controller = listeners.get(controller_names[0])
    others = [name for name in dict.fromkeys(controller_names) if name != controller_names[0]]
    clients = tuple(listeners[name] for name in others if name in listeners)
    if "controller" in roles and controller is None:
        raise ConfigError(f"listeners has no {controller_names[0]}, which controller.listener.names requires")
    if "broker" not in roles:
        if brokers:
            raise ConfigError(f"listener {brokers[0].name} is for a broker, but process.roles is controller")
        return _Listeners((), controller, clients, "")
    if "controller" not in roles and (controller is not None or clients):
        name = clients[0].name if controller is None else controller.name
        raise ConfigError(f"listeners has {name}, but process.roles is broker")
    if not brokers:
        raise ConfigError("listeners needs at least one listener for clients")
    inter_broker = str(values["inter.broker.listener.name"] or brokers[0].name).upper()
    if all(item.name != inter_broker for item in brokers):
        raise ConfigError(
            f"inter.broker.listener.name is {inter_broker}, which is not a listener of this broker"
        )
    return _Listeners(brokers, controller, clients, inter_broker)


def _static_voters(items: Sequence[str]) -> VoterSet | None:
    """Voters named in the file have no directory id: the zero id means any directory."""
    voters = []
    for item in items:
        node, at, address = item.partition("@")
        if not at or not _NODE_ID.fullmatch(node):
            raise ConfigError(f"controller.quorum.voters: {item!r} is not id@host:port")
        voters.append(Voter(ReplicaKey(int(node), ZERO_UUID), _address("controller.quorum.voters", address)))
    if len({voter.key.id for voter in voters}) != len(voters):
        raise ConfigError("controller.quorum.voters names an id twice")
    return VoterSet(voters) if voters else None


def _bootstrap_servers(items: Sequence[str]) -> tuple[Address, ...]:
    return tuple(dict.fromkeys(_address("controller.quorum.bootstrap.servers", item) for item in items))


def _address(name: str, text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _check_auto_join(config: ServerConfig) -> None:
    if not config.values["controller.quorum.auto.join.enable"] or not config.is_controller:
        return
    if config.static_voters is not None:
        raise ConfigError("controller.quorum.auto.join.enable: controller.quorum.voters fixes the voters")
    if config.controller_address is None:
        raise ConfigError(
            "controller.quorum.auto.join.enable: the other voters need this controller's address:"
            " give its listener a host, in listeners or advertised.listeners"
        )


def _check_voters(voters: VoterSet | None, node_id: int, roles: frozenset[str]) -> None:
    if voters is None:
        return
    is_voter = any(voter.key.id == node_id for voter in voters)
    if "controller" in roles and not is_voter:
        raise ConfigError(f"controller.quorum.voters lacks node.id {node_id}, which has the controller role")
    if "controller" not in roles and is_voter:
        raise ConfigError(f"controller.quorum.voters names node.id {node_id}, which has no controller role")
