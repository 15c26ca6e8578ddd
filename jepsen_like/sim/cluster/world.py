"""Whole nodes in virtual time: controllers, brokers and combined nodes with the product's own parts.

Each node has a disk, a clock and a directory id that outlive its processes. A process is assembled as
:mod:`pykraft.node.node` does it; what differs is the adapters below the ports. Everything is drawn from the
seed. Faults are :mod:`.faults`'s business, clients :mod:`.clients`', and what must hold
:mod:`.checks`'.
"""

from __future__ import annotations

import contextvars
import random
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.jepsen_like.sim.cluster.broker import SimBroker
from pykraft.jepsen_like.sim.cluster.checks import ClusterChecker
from pykraft.jepsen_like.sim.cluster.disk import CrashPointDisk
from pykraft.jepsen_like.sim.cluster.options import draw_options
from pykraft.jepsen_like.sim.cluster.voters import VoterWatch, WatchedQuorum
from pykraft.jepsen_like.sim.cluster.watchers import Probe, WatchedController
from pykraft.jepsen_like.sim.links import Links
from pykraft.jepsen_like.sim.network import SimServer, SimTransport
from pykraft.jepsen_like.sim.processes import ProcessClock, ProcessKilledError, ProcessLoop, SimProcess
from pykraft.jepsen_like.sim.virtual_loop import SimExecutor
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.log import Log, LogConfig
from pykraft.metadata_log.controller import rpc as controller_rpc
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.driver import Registrar
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.snapshot_generator import SnapshotGenerator
from pykraft.metadata_log.snapshot_schedule import SnapshotConfig
from pykraft.quorum.bootstrap import format_log, read_bootstrap_voters
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, Voter, VoterSet
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore
from pykraft.runtime.rpc import RpcAddress

DIRECTORY = "/data/__cluster_metadata-0"
UNCLEAN = {"unclean.leader.election.enable": "true"}


def features_of_this_software() -> list[pb.Feature]:
    """As a node states them when it registers."""
    return [
        pb.Feature(name=one.name, min_level=one.min_level, max_level=one.max_level)
        for one in SUPPORTED_RANGES
    ]


class SimNode:
    """One machine: what survives a process, and the parts of the process that runs now, if one does."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.rng = random.Random(f"node {world.seed} {node_id}")
        self.is_controller = node_id in world.options.controllers
        self.is_broker = node_id in world.options.brokers
        self.directory_id = Uuid(bytes([0x10 + node_id]) * 16)
        self.disk = CrashPointDisk(self)
        self.clock = ProcessClock(world.loop, start_ms=1000 * self.rng.randrange(1, 1_000_000))
        self.starts = 0
        self.session_ms = world.options.session_ms
        self.process: SimProcess | None = None
        self.server: SimServer | None = None
        self.log: Log | None = None
        self.quorum: WatchedQuorum | None = None
        self.loader: MetadataLoader | None = None
        self.snapshots: SnapshotGenerator | None = None
        self.controller: WatchedController | None = None
        self.broker: SimBroker | None = None
        self.dead_secrets: list[bytes] = []
        self.stopped_in_order_at_epoch: int | None = None
        self.may_start = True
        self.disk_is_new = False
        """And no registration has said so yet."""
        self._lost_power = False

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    @property
    def address(self) -> RpcAddress:
        return RpcAddress("sim", self.id)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.running

    def images(self) -> list[MetadataImage]:
        """What this process holds of the committed metadata."""
        images = [] if self.loader is None else [self.loader.image]
        if self.controller is not None:
            images.append(self.controller.committed_image)
        return images

    # --- coming up --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Called from outside any process."""
        if self.alive or not self.may_start:
            return
        self.starts += 1
        self.quorum = self.server = None
        self.process = SimProcess(f"{self.id}.{self.starts}", self.clock.rate)
        self.world.processes.append(self.process)
        self.world.note(f"start {self.process.name}")
        self.world.checker.started(self)
        boot = self.world.loop.create_task(self._boot(self.process), context=self.process.context)
        boot.add_done_callback(self._booted, context=self.world.outside)

    def _note_dead(self, secret: bytes) -> None:
        """As :class:`pykraft.runtime.directory_lock.DirectoryLock`: after a power loss nothing is known."""
        self.dead_secrets.append(secret)
        if self._lost_power:
            self.dead_secrets.clear()
            self._lost_power = False

    def _booted(self, boot: Any) -> None:
        error = None if boot.cancelled() else boot.exception()
        if error is not None and not isinstance(error, ProcessKilledError):
            self.exited(error)

    async def _boot(self, process: SimProcess) -> None:
        world, clock = self.world, self.clock
        transport = SimTransport(world, self.id, process)
        self.disk.make_dirs(DIRECTORY)
        self.log = Log.open(
            self.disk,
            DIRECTORY,
            LogConfig(segment_bytes=world.options.segment_bytes),
            now_ms=clock.wall_ms(),
        )
        if self.broker is not None:
            self._note_dead(self.broker.secret)
        stopped_at, self.stopped_in_order_at_epoch = self.stopped_in_order_at_epoch, None
        self.broker = SimBroker(self, self.rng, stopped_at) if self.is_broker else None
        publishers = [] if self.broker is None else self.broker.publishers
        options = world.options
        self.quorum = quorum = WatchedQuorum(
            config=QuorumConfig(
                fetch_max_bytes=options.fetch_max_bytes,
                fetch_snapshot_max_bytes=options.fetch_max_bytes,
                max_retention_bytes=options.retention_bytes,
                auto_join=options.auto_join and self.is_controller,
                bootstrap_servers=world.bootstrap_servers,
            ),
            cluster_id=world.cluster_id,
            local=self.key,
            voters=self._first_voters(),
            log=self.log,
            state_store=QuorumStateStore(self.disk, DIRECTORY),
            transport=transport,
            clock=clock,
            rng=self.rng,
            on_fatal=self.exited,
            flush_executor=SimExecutor(self.rng, world.options.max_flush_ms),  # type: ignore[arg-type]
            local_address=self.address if self.is_controller else None,
        )
        quorum.node = self
        self.snapshots = snapshots = SnapshotGenerator(
            SnapshotConfig(options.snapshot_bytes, options.snapshot_interval_ms), quorum, clock, self.exited
        )
        self.controller = self._make_controller(transport, quorum) if self.is_controller else None
        self.loader = loader = MetadataLoader(
            publishers, self.controller, snapshots, high_watermark=lambda: quorum.high_watermark
        )
        server = SimServer()
        if self.controller is not None:
            quorum.register(server)
            controller_rpc.register(server, self.controller)
        self.server = server
        await quorum.start([Probe(self, first=True), loader, Probe(self, first=False)])
        snapshots.start()
        if self.controller is not None:
            await self.controller.start()
        if self.broker is not None:
            await self.broker.start(transport, quorum, loader)

    def _make_controller(self, transport: SimTransport, quorum: WatchedQuorum) -> WatchedController:
        self.session_ms = self.world.options.session_ms_of(self.world.seed, f"{self.id}.{self.starts}")
        controller = WatchedController(
            node_id=self.id,
            config=ControllerConfig(
                session_timeout_ms=self.session_ms,
                num_partitions=2,
                default_replication_factor=2,
                leader_imbalance_check_interval_ms=20_000,
                topic_defaults=UNCLEAN if self.world.options.unclean else {},
            ),
            cluster_id=self.world.cluster_id,
            clock=self.clock,
            rng=self.rng,
            bootstrap_features=self.world.options.features,
            quorum=quorum,
            register=self._make_registrar(transport, quorum),
            on_fatal=self.exited,
        )
        controller.node = self
        return controller

    def _make_registrar(self, transport: SimTransport, quorum: WatchedQuorum) -> Registrar:
        """As :class:`pykraft.node.node.Node` does it."""
        channel = ControllerChannel(transport, quorum.leader_address, self.clock, self.rng)
        request = pb.RegisterControllerRequest(
            cluster_id=self.world.cluster_id,
            controller_id=self.id,
            features=features_of_this_software(),
            session_timeout_ms=self.session_ms,
        )

        async def register() -> None:
            await channel.call("RegisterController", request, pb.RegisterControllerResponse.FromString, 5000)

        return register

    # --- the voters -------------------------------------------------------------------------------------

    def format(self) -> None:
        """Lay down what formatting does, on a disk of the first hour."""
        options = self.world.options
        is_named = self.id in options.first_voters and options.voters_in_log
        self._format(self.world.voters if is_named else None)

    def _format(self, voters: VoterSet | None = None) -> None:
        format_log(self.disk, DIRECTORY, self.clock.wall_ms(), voters, may_vote=self.is_controller)

    def _first_voters(self) -> VoterSet:
        if not self.world.options.voters_in_log:
            return self.world.voters
        return read_bootstrap_voters(self.disk, DIRECTORY) or NO_VOTERS

    def replace_disk(self, directory_id: Uuid) -> None:
        """The process is dead. Nothing that was on the disk is known any more."""
        self.disk = CrashPointDisk(self)
        self._format()
        self.directory_id = directory_id
        self.disk_is_new = True
        self.stopped_in_order_at_epoch = None
        self.world.note(f"new disk {self.id}")

    def set_clock_error(self, error: float) -> None:
        """Let the clock run so much faster or slower than it should."""
        self.clock.set_rate(1 + error)
        if self.process is not None:
            self.process.rate = 1 + error

    # --- going down -------------------------------------------------------------------------------------

    def kill(self, *, power_loss: bool) -> None:
        """Nothing is said to anybody. A power loss takes or tears what was not flushed; kill -9 leaves it."""
        process = self.process
        if process is not None and process.alive:
            self.world.note(f"kill {process.name} {power_loss}")
            process.kill()
        if power_loss:
            self.disk.crash(self.rng)
            self._lost_power = True

    def exited(self, error: BaseException) -> None:
        """The process ends by itself: it cannot believe its disk, was refused, or has a bug."""
        if isinstance(error, ProcessKilledError) or not self.alive:
            return
        expected = isinstance(error, OSError | KafkaError) or (
            isinstance(error, QuorumStateError) and self.disk.was_damaged
        )
        if not expected:
            self.world.failed(error)
            return
        self.world.note(f"exit {self.id} {type(error).__name__} {error}")
        self.world.struck["node exited by itself"] = self.world.struck.get("node exited by itself", 0) + 1
        # A disk that has refused a write or a flush works again only after the machine was started anew.
        self.kill(power_loss=isinstance(error, OSError))
        self.world.later(200 + self.rng.randrange(800), self.start)

    def stop(self) -> None:
        """Gracefully: brokers hand over, leaders too."""
        if self.alive and self.process is not None:
            process = self.process
            self.world.note(f"stop {process.name}")
            self.world.loop.create_task(self._stop(process), context=process.context)

    async def _stop(self, process: SimProcess) -> None:
        if self.broker is not None and self.broker.driver is not None:
            await self.broker.stop()
            self.stopped_in_order_at_epoch = self.broker.lifecycle.epoch
        if self.controller is not None:
            await self.controller.stop()
        if self.snapshots is not None:
            await self.snapshots.stop()
        if self.quorum is not None:
            await self.quorum.stop()
        try:
            if self.log is not None:
                self.log.close()
        except OSError as error:  # index files are written last: an injected fault may wait for them
            self.exited(error)
        process.kill()


class World:
    """All nodes, the network, the time, and what has been seen of them."""

    def __init__(self, seed: int, loop: ProcessLoop, log: list[str] | None = None) -> None:
        self.seed = seed
        self.loop = loop
        self.log = log
        self.trace = sha256()
        self.events = 0
        self.outside = contextvars.copy_context()
        self.options = draw_options(seed)
        self.cluster_id = "sim"
        self.links = Links(random.Random(f"links {seed}"), max_delay_ms=self.options.max_delay_ms)
        self.starved: list[int] = []
        """Nodes whose fetches of the metadata log are lost, while all else that they send passes."""
        self.wishes_heard: Counter[int] = Counter()
        """How often a controller has heard that a broker wishes to be fenced."""
        self.error: BaseException | None = None
        self.struck: dict[str, int] = {}
        self.processes: list[SimProcess] = []
        self.voters_stay = False
        """Admins change no voters."""
        self.mending = False
        """Leaders take everybody into the ISR, so that partitions come to rest."""
        self.quiet = False
        """Brokers propose nothing any more, so that all nodes can come to one offset."""
        ids = sorted({*self.options.controllers, *self.options.brokers})
        self.nodes: dict[int, SimNode] = {}
        self.checker = ClusterChecker(self)
        self.nodes = {node_id: SimNode(self, node_id) for node_id in ids}
        first = [self.nodes[node_id] for node_id in self.options.first_voters]
        in_log = self.options.voters_in_log
        self.voters = VoterSet(
            [Voter(node.key if in_log else ReplicaKey(node.id), node.address) for node in first]
        )
        self.bootstrap_servers = tuple(node.address for node in self.controllers) if in_log else ()
        self.voter_watch = VoterWatch(self)
        for node in self.nodes.values():
            node.format()

    @property
    def controllers(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def brokers(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def active(self) -> list[SimNode]:
        """Nodes that believe to be the active controller."""
        return [n for n in self.controllers if n.alive and n.controller is not None and n.controller.active]

    def note(self, what: str) -> None:
        """One line of the trace."""
        line = f"{self.loop.now_s:.6f} {what}"
        self.trace.update(line.encode())
        if self.log is not None:
            self.log.append(line)

    def later(self, after_ms: float, callback: Callable[..., Any], *args: Any) -> None:
        """Let the world, not a process, do something later."""
        self.loop.call_later(after_ms / 1000, callback, *args, context=self.outside)

    def crash_point_reached(self, node: SimNode, *, power_loss: bool) -> None:
        """A process dies inside a call to its disk, and is started again soon."""
        self.struck["died in a disk call"] = self.struck.get("died in a disk call", 0) + 1
        node.kill(power_loss=power_loss)
        self.later(node.rng.choice((1, 50, 500, 2000)), node.start)

    def failed(self, error: BaseException) -> None:
        """What nobody may survive: a broken invariant, a bug."""
        if self.error is None:
            self.note(f"failed {type(error).__name__} {error}")
            self.error = error
