"""Checks that a cluster can be reached, before a client that would retry for a minute or forever."""

from __future__ import annotations

import socket
import time
from typing import Final

import click

from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.runtime.address import Address

_TIMEOUT_S: Final = 5.0
_RETRY_S: Final = 0.1


def check_reachable(bootstrap_server: str) -> None:
    """Return when a host accepts a connection; waits for a cluster that is just starting.

    Raises :class:`click.UsageError` for a malformed address, :class:`click.ClickException` that says which
    hosts cannot be resolved and which do not listen.
    """
    try:
        addresses = parse_bootstrap_servers(bootstrap_server)
    except ValueError as error:
        raise click.UsageError(str(error).replace("bootstrap.servers", "--bootstrap-server")) from None
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        refusals = {}
        for address in addresses:
            refusal = _refusal(address, max(deadline - time.monotonic(), _RETRY_S))
            if refusal is None:
                return
            refusals[address] = refusal
        if time.monotonic() >= deadline or all(map(_is_unknown_host, refusals.values())):
            raise click.ClickException(_message(refusals))
        time.sleep(_RETRY_S)


def _refusal(address: Address, timeout_s: float) -> OSError | None:
    try:
        socket.create_connection((address.host, address.port), timeout_s).close()
    except OSError as error:
        return error
    except UnicodeError:  # names are encoded before they are resolved
        raise click.UsageError(f"{address.host!r} is not a host name") from None
    return None


def _is_unknown_host(error: OSError) -> bool:
    """Whether the name does not exist; not whether it cannot be resolved at the moment."""
    return isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN


def _message(refusals: dict[Address, OSError]) -> str:
    unresolved = {it.host: error for it, error in refusals.items() if isinstance(error, socket.gaierror)}
    said = [f"cannot resolve {host}: {error.strerror}" for host, error in unresolved.items()]
    silent = [str(it) for it in refusals if it.host not in unresolved]
    if silent:
        said.insert(0, f"no process listens at {','.join(silent)}")
    return "; ".join(said)
