"""A controller's listeners for clients: Kafka's protocol, beside the gRPC of the quorum (KIP-919).

``controller.listener.names`` names them after its first, which is the quorum's. Tools with
``--bootstrap-controller`` send requests here that they could also send through a broker. The active
controller handles them itself; any other responds NOT_CONTROLLER (NOT_LEADER_OR_FOLLOWER to requests for the
quorum) and names the active one in DescribeCluster, as Kafka's controllers do.

One port for both protocols would need a proxy of our own in front of gRPC, which cannot take over a socket
that was accepted elsewhere: every byte of the quorum would pass through this process twice.
"""

from __future__ import annotations

from collections.abc import Callable

from pykraft.broker.apis.services import ControllerServices
from pykraft.broker.apis.table import make_controller_apis
from pykraft.broker.serving.request_server import RequestServer
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.controller.calls.forwarding import AskedOfQuorum, find_forwarded
from pykraft.metadata_log.controller.driver import ControllerDriver
from pykraft.metadata_log.image import MetadataImage
from pykraft.node.config import ServerConfig
from pykraft.node.world import World
from pykraft.quorum.driver import QuorumNode
from pykraft.runtime.slices import Slices


def make_controller_requests(
    config: ServerConfig, world: World, cluster_id: str, controller: ControllerDriver, quorum: QuorumNode
) -> RequestServer[ControllerServices]:
    """The handler of requests from the clients of one controller."""
    services = ControllerServices(
        metadata=_CommittedView(config.node_id, cluster_id, controller),
        controller=_OwnController(controller),
        server_properties=config.given,
        kraft_version=lambda: quorum.voters.kraft_version,
        loggers=world.loggers,
        slices=Slices(world.streams.budget, "requests that wait"),
        leader_id=lambda: quorum.leader.leader_id,
    )
    return RequestServer(services, make_controller_apis(), world.streams.budget, world.fatal)


@dataclass(frozen=True, slots=True)
class _CommittedView:
    """The committed metadata, as far as this controller knows it."""

    node_id: int
    cluster_id: str
    _controller: ControllerDriver

    @property
    def image(self) -> MetadataImage:
        return self._controller.committed_image


@dataclass(frozen=True, slots=True)
class _OwnController:
    """This node's controller in the place of a broker's channel to the active one."""

    _driver: ControllerDriver

    async def forward(
        self,
        context: RequestContext,
        api_key: int,
        api_version: int,
        body: bytes,
        timeout_ms: int,
        own_timeout_ms: Callable[[], int] | None = None,
    ) -> bytes:
        try:
            return await self._driver.forward(context, api_key, api_version, body, timeout_ms)
        except KafkaError as error:
            is_of_quorum = isinstance(find_forwarded(api_key), AskedOfQuorum)
            if error.code is ErrorCode.NOT_CONTROLLER and is_of_quorum:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from None
            raise
