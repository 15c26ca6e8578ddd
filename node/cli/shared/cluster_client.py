"""Shared code of commands that use a cluster: the options that name it, the admin client of it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, cast

import click
from click.core import ParameterSource

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import Broker
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.node.cli.shared.client_properties import CLIENT_FIELDS, read_properties
from pykraft.node.cli.shared.common import FC, bootstrap_server_option, version_option
from pykraft.node.cli.shared.reach import check_reachable
from pykraft.runtime.address import Address

_BOOTSTRAP: Final = frozenset({"bootstrap.servers", "bootstrap.controllers"})
"""Kafka's tools, too, take these from their options only."""

_PROTOCOL: Final = "security.protocol"
_SECURITY: Final = ("security.", "sasl.", "ssl.")


def read_admin_settings(path: str | None) -> dict[str, Any]:
    """Fields of :class:`~pykraft.kafka_client.cluster.ClientConfig`, from a file of Kafka's admin client.

    None without a file. A property that this client has no use for is named in a warning, as by Kafka's own
    client. :class:`click.UsageError` for a file that cannot be read, :class:`ConfigError` for a value that is
    not allowed and for every property that asks for security: doing without it in silence would be a leak.
    """
    if path is None:
        return {}
    given = read_properties((), "--command-config", path)
    protocol = given.pop(_PROTOCOL, "PLAINTEXT").strip()
    if protocol.upper() != "PLAINTEXT":
        raise ConfigError(f"{path}: {_PROTOCOL}={protocol} is not supported, only PLAINTEXT")
    known = {key.name: field for field, key in CLIENT_FIELDS.items()}
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith(_SECURITY):
            raise ConfigError(f"{path}: {name} is not supported: there is neither TLS nor SASL")
        if name in known:
            settings[known[name]] = CLIENT_FIELDS[known[name]].parse(value)
        elif name not in _BOOTSTRAP:
            click.echo(f"warning: {path}: {name} has no effect here", err=True)
    return settings


_TIMEOUT_MS: Final = 15_000
_TIMEOUT_HINT: Final = "is a majority of the controllers running? Their logs name the leader"


@contextlib.contextmanager
def admin_client(
    bootstrap_server: str, timeout_ms: int = _TIMEOUT_MS, settings: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[AdminClient]:
    """An admin client of a cluster that can be reached; each request may take ``timeout_ms``.

    ``settings`` are other fields of :class:`~pykraft.kafka_client.cluster.ClientConfig`.
    """
    check_reachable(bootstrap_server)
    settings = {"default_api_timeout_ms": timeout_ms, "request_timeout_ms": timeout_ms, **settings}
    with AdminClient(bootstrap_server, **settings) as client:
        try:
            yield client
        except KafkaError as error:
            last = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
            if last.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            raise KafkaError(error.code, f"{error.message}; {_TIMEOUT_HINT}") from error


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that the options of a command name. Nothing is checked before :meth:`client`, so that help
    and commands that need no cluster work without it.
    """

    bootstrap_server: str | None
    bootstrap_controller: str | None
    command_config: str | None

    @property
    def is_controllers(self) -> bool:
        """Whether its controllers are asked, without a broker in between."""
        return self.bootstrap_controller is not None

    def at(self, address: str) -> Target:
        """The same, reached at this address only."""
        if self.is_controllers:
            return replace(self, bootstrap_controller=address)
        return replace(self, bootstrap_server=address)

    @contextlib.contextmanager
    def client(self, timeout_ms: int = _TIMEOUT_MS, **settings: Any) -> Iterator[AdminClient]:
        """As :func:`admin_client`; what ``--command-config`` says takes precedence.

        :class:`click.UsageError` unless one bootstrap option is given, :class:`ConfigError` for a property
        that cannot be met.
        """
        if self.bootstrap_server is not None and self.bootstrap_controller is not None:
            raise click.UsageError("give only one of --bootstrap-server, --bootstrap-controller")
        bootstrap = self.bootstrap_controller or self.bootstrap_server
        if not bootstrap:
            raise click.UsageError("Missing option '--bootstrap-server'.")
        settings |= read_admin_settings(self.command_config)
        with admin_client(bootstrap, timeout_ms, settings) as client:
            if self.is_controllers:
                _learn_controllers(client)
            yield client


def _learn_controllers(client: AdminClient) -> None:
    """Controllers take the place of brokers: requests for a node find it by its id, and any other request its
    way to the active one, whichever of them was named.
    """
    described = client.describe_cluster(controllers=True)
    client.admin.cluster.metadata.brokers = {
        it.id: Broker(it.id, Address(it.host, it.port)) for it in described.brokers
    }
    client.admin.cluster.asks_controllers = True


def receives_target(function: FC) -> FC:
    """A command that has :func:`cluster_options` receives them as one :class:`Target`, ``target``."""

    @functools.wraps(function)
    def run(
        *arguments: Any,
        bootstrap_server: str | None,
        command_config: str | None,
        bootstrap_controller: str | None = None,
        **given: Any,
    ) -> Any:
        context = click.get_current_context()
        if context.get_parameter_source("bootstrap_server") is ParameterSource.ENVIRONMENT:
            bootstrap_server = None if bootstrap_controller is not None else bootstrap_server
        target = Target(bootstrap_server, bootstrap_controller, command_config)
        return function(*arguments, target=target, **given)

    return cast(FC, run)


def cluster_options(
    *, names: Mapping[str, tuple[str, ...]] = MappingProxyType({}), controllers: bool = False
) -> Callable[[FC], FC]:
    """The options that name a cluster, for a command that receives a ``target``; and ``--version``.

    ``names``: further names of an option, as Kafka's tool has them; ``controllers``: whether the tool can ask
    controllers.
    """

    def also(option: str) -> tuple[str, ...]:
        return names.get(option, ())

    def decorate(function: FC) -> FC:
        options = [bootstrap_server_option(*also("--bootstrap-server"), required=False)]
        if controllers:
            options.append(
                click.option(
                    "--bootstrap-controller",
                    *also("--bootstrap-controller"),
                    metavar="HOST:PORT,…",
                    help="Controllers to ask instead, at their listeners for clients.",
                )
            )
        options.append(
            click.option(
                "--command-config",
                *also("--command-config"),
                metavar="FILE",
                help="A file with properties of the admin client.",
            )
        )
        run = receives_target(function)
        for option in (version_option(*also("--version")), *reversed(options)):
            option(run)
        return run

    return decorate
