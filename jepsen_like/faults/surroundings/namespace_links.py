"""Links between network namespaces: nftables loses packets where they arrive, tc slows them where they leave.

A packet filter sees who sent a packet, so each direction of a link is broken by itself. Whole packets are
lost, and TCP sends them again: connections feel it as in a real network. Decides nothing about when.
"""

import contextlib
import threading
from collections.abc import Sequence
from typing import Final

from pykraft.jepsen_like.faults.surroundings.namespaces import TABLE, address, inside, link
from pykraft.jepsen_like.faults.surroundings.surroundings import CLIENTS, WHOLE, LinkState
from pykraft.testing.processes.commands import CommandError, run_command

_UNLIMITED_BYTES_PER_S: Final = 1_250_000_000
_BURST_BYTES: Final = 16_384
_LONGEST_QUEUE_S: Final = 0.5
_SHORTEST_QUEUE_BYTES: Final = 131_072
"""A packet on its way between namespaces may have 64 KiB: the queue must hold two."""


class NamespaceLinks:
    """The :class:`~pykraft.jepsen_like.faults.surroundings.surroundings.Links` of a
    :class:`~pykraft.jepsen_like.faults.surroundings.namespaces.Network`."""

    def __init__(self, node_ids: Sequence[int]) -> None:
        self._ends = (CLIENTS, *node_ids)
        self._states: dict[tuple[int, int], LinkState] = {}
        self._lock = threading.Lock()
        self._no_delay = _why_no_delay()

    def set(self, source: int, target: int, state: LinkState) -> None:
        """:class:`CommandError` if a command fails. What waits in a queue of the source, to anybody, is lost
        when its delays or throttles change."""
        with self._lock:
            before = self._states.get((source, target), WHOLE)
            self._states[source, target] = state
            if _arrival(before) != _arrival(state):
                self._filter(target)
            if _departure(before) != _departure(state):
                self._shape(source)

    def why_unavailable(self, state: LinkState) -> str | None:
        return self._no_delay if state.delay_ms or state.jitter_ms else None

    def _filter(self, target: int) -> None:
        """Replace all rules of a target, at one moment."""
        lines = [f"flush chain {TABLE} input"]
        for source in self._ends:
            state = self._states.get((source, target), WHOLE)
            lines += [f"add rule {TABLE} input ip saddr {address(source)} {rule}" for rule in _rules(state)]
        run_command(*inside(target), "nft", "-f", "-", script="\n".join(lines) + "\n")

    def _shape(self, source: int) -> None:
        """Replace all queues of a source: one for each target with a delay or a throttle."""
        device = f"dev {link(source)}"
        with contextlib.suppress(CommandError):  # there is none yet
            run_command(*inside(source), "tc", "qdisc", "delete", *device.split(), "root")
        lines = []
        for target in self._ends:
            state = self._states.get((source, target), WHOLE)
            if _departure(state) != _departure(WHOLE):
                lines += _queue(device, target, state)
        if lines:
            lines.insert(0, f"qdisc add {device} root handle 1: htb")
            run_command(*inside(source), "tc", "-batch", "-", script="\n".join(lines) + "\n")


def _arrival(state: LinkState) -> tuple[object, ...]:
    return state.cut, state.resets, state.loss


def _departure(state: LinkState) -> tuple[object, ...]:
    return state.delay_ms, state.jitter_ms, state.bytes_per_s


def _rules(state: LinkState) -> list[str]:
    """A reset answers the sender. The other end learns of it by a reset that must pass, when it sends."""
    if state.cut and state.resets:
        return ["tcp flags & rst == rst accept", "meta l4proto tcp reject with tcp reset", "drop"]
    if state.cut:
        return ["drop"]
    return [f"numgen random mod 10000 < {max(1, round(state.loss * 10_000))} drop"] if state.loss else []


def _queue(device: str, target: int, state: LinkState) -> list[str]:
    number = f"{target + 1:x}"
    rate = int(state.bytes_per_s or _UNLIMITED_BYTES_PER_S)
    burst = f"burst {_BURST_BYTES} cburst {_BURST_BYTES} quantum {_BURST_BYTES}"
    if state.delay_ms or state.jitter_ms:
        queue = f"netem delay {state.delay_ms}ms {state.jitter_ms}ms limit 10000"
    else:
        queue = f"bfifo limit {max(_SHORTEST_QUEUE_BYTES, int(rate * _LONGEST_QUEUE_S))}"
    return [
        f"class add {device} parent 1: classid 1:{number} htb rate {rate}bps {burst}",
        f"qdisc add {device} parent 1:{number} {queue}",
        f"filter add {device} parent 1: protocol ip prio 1 u32 match ip dst {address(target)}/32"
        f" flowid 1:{number}",
    ]


def _why_no_delay() -> str | None:
    """Some kernels come without netem. Tried on the loopback device of the runner's own namespace."""
    try:
        run_command("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except CommandError as error:
        return f"this kernel delays no packets ({error}); the portable tier does"
    run_command("tc", "qdisc", "delete", "dev", "lo", "root")
    return None
