"""Faults on demand: what requests of clients meet, and clocks that are wrong. After Kafka's kfake."""

from datetime import datetime

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.testing.nodes import Nodes
from pykraft.testing.request_faults import Effect, RequestFault


class FaultsOnDemand:
    """The part of a cluster that breaks requests and clocks of its nodes, which must be in threads."""

    _nodes: Nodes

    def set_clock(self, time: datetime | float, node: int | None = None) -> None:
        """Set the wall clock of one node, or of all; it goes on from there. A float is in seconds since 1970.

        Retention and timestamps go by it, timeouts and sessions do not. Needs nodes in threads.
        """
        seconds = time.timestamp() if isinstance(time, datetime) else time
        self._need_threads("a clock")
        for one in self._nodes if node is None else (self._nodes[node],):
            self._nodes.clocks[one.node_id].set(round(seconds * 1000))

    def reset_clock(self) -> None:
        for clock in self._nodes.clocks.values():
            clock.reset()

    def refuse(
        self,
        api: ApiKey | str,
        error: ErrorCode,
        *,
        times: int | None = None,
        node: int | None = None,
        client_id: str | None = None,
    ) -> RequestFault:
        """Answer requests with an error, without carrying them out. ``api`` as ``"Produce"``.

        ``times``: only so many. The fault ends with a ``with`` block, or by its ``end()``. Needs nodes in
        threads, as the three below do.
        """
        return self._add(Effect.REFUSE, api, times, node, client_id, error=error)

    def delay(
        self,
        api: ApiKey | str,
        delay_s: float,
        *,
        times: int | None = None,
        node: int | None = None,
        client_id: str | None = None,
    ) -> RequestFault:
        """Handle requests so much later; what follows on their connections waits behind them."""
        return self._add(Effect.DELAY, api, times, node, client_id, delay_s=delay_s)

    def drop(
        self,
        api: ApiKey | str,
        *,
        times: int | None = None,
        node: int | None = None,
        client_id: str | None = None,
    ) -> RequestFault:
        """Close the connection instead of handling a request."""
        return self._add(Effect.DROP, api, times, node, client_id)

    def lose_answer(
        self,
        api: ApiKey | str,
        *,
        times: int | None = None,
        node: int | None = None,
        client_id: str | None = None,
    ) -> RequestFault:
        """Carry requests out, and close the connection instead of answering: the client cannot know."""
        return self._add(Effect.LOSE_ANSWER, api, times, node, client_id)

    def drop_connections(self, node: int | None = None) -> None:
        """Close the connections of clients to one node, or to all. They may connect again."""
        self._need_threads("connections")
        for one in self._nodes if node is None else (self._nodes[node],):
            self._nodes.faults.drop_connections(one.node_id)

    def clear_faults(self) -> None:
        """End every fault of requests."""
        self._nodes.faults.clear()

    def _add(
        self,
        effect: Effect,
        api: ApiKey | str,
        times: int | None,
        node: int | None,
        client_id: str | None,
        *,
        error: ErrorCode = ErrorCode.NONE,
        delay_s: float = 0.0,
    ) -> RequestFault:
        self._need_threads("requests")
        if node is not None:
            _ = self._nodes[node]  # refuses one that there is not
        return self._nodes.faults.add(
            RequestFault(effect, _api_key(api), node, client_id, times, ErrorCode(error), delay_s)
        )

    def _need_threads(self, what: str) -> None:
        if self._nodes.in_processes:
            raise RuntimeError(f"{what} of nodes in processes cannot be reached: use processes=False")


def _api_key(api: ApiKey | str) -> ApiKey:
    if isinstance(api, ApiKey):
        return api
    wanted = api.replace("_", "").upper()
    for key in ApiKey:
        if key.name.replace("_", "") == wanted:
            return key
    raise ValueError(f"no API is called {api!r}")
