"""One simulated machine, and the shipped node that runs on it.

Disk, clock and directory id outlive a process. A process is a :class:`pykraft.node.node.Node` as it ships, in
a world of its own: this machine's disk and clock, and the network that all machines share.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from pykraft.broker.membership.lifecycle import BrokerState
from pykraft.jepsen_like.simulation.cluster.checks.derived_checks import DERIVED, find_difference
from pykraft.jepsen_like.simulation.cluster.checks.disk_checks import Replica, check_disk
from pykraft.jepsen_like.simulation.cluster.disk import CrashPointDisk
from pykraft.jepsen_like.simulation.cluster.observers import ReplicaWatch, ShardWatch
from pykraft.jepsen_like.simulation.cluster.parts import Parts
from pykraft.jepsen_like.simulation.cluster.settings import data_dirs, quorum_address, server_config
from pykraft.jepsen_like.simulation.schedule import describe
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.interface import CorruptCheckpointError, CorruptLogError
from pykraft.metadata_log.image import MetadataImage
from pykraft.node.errors import StartError
from pykraft.node.format import format_directories
from pykraft.node.incarnation import Incarnation, draw_uuid
from pykraft.node.node import Node
from pykraft.node.world import World as NodeWorld
from pykraft.quorum.bootstrap import BootstrapError
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.quorum.state_store import QuorumStateError
from pykraft.runtime.address import Address
from pykraft.runtime.loggers import ProcessLoggers
from pykraft.runtime.network.tcp import StreamRuntime
from pykraft.runtime.simulated.processes import ProcessClock, ProcessKilledError, SimProcess
from pykraft.runtime.simulated.virtual_loop import SimExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykraft.broker.logs.log_manager import LogManager
    from pykraft.jepsen_like.simulation.cluster.view import MachineWorld
    from pykraft.jepsen_like.simulation.cluster.watch import Watch

_BY_DAMAGE = (QuorumStateError, CorruptLogError, CorruptCheckpointError, BootstrapError)
"""The errors with which a node may end if its disk was damaged, and only then."""


class SimNode:
    """``parts``: of the process that runs now, or ran last."""

    def __init__(self, world: MachineWorld, watch: Watch, node_id: int) -> None:
        self.world = world
        self.watch = watch
        self.id = node_id
        self.rng = random.Random(f"node {world.seed} {node_id}")
        self.is_controller = node_id in world.options.controllers
        self.is_broker = node_id in world.options.brokers
        self.directory_id = Uuid(bytes([0x10 + node_id]) * 16)
        self.disk = CrashPointDisk(self._die_in_call)
        self._disk_rng = random.Random(f"disk {world.seed} {node_id}")
        self.clock = ProcessClock(world.loop, start_ms=1000 * self.rng.randrange(1, 1_000_000))
        self.starts = 0
        self.process: SimProcess | None = None
        self.node: Node | None = None
        self.parts = Parts()
        self.incarnation = Incarnation(draw_uuid(self.rng.randbytes))
        self.may_start = True
        self.is_up = False
        """Whether its start is complete."""
        self.may_mend = True
        """Whether a log directory that has failed works again at the next start."""
        self.disks_checked = 0
        """How often a copy of its disk was opened."""
        self.disk_is_new = False
        """And no registration has reported it yet."""
        self._dead_secrets: list[Uuid] = []
        self._lost_power = False

    def _directory_ids(self) -> Iterator[Uuid]:
        """Ids of its log directories; the first one is also the one that voters are named by."""
        for number in range(len(data_dirs(self.world.options))):
            yield Uuid(bytes(byte ^ number << 6 for byte in self.directory_id))

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    @property
    def address(self) -> Address:
        return quorum_address(self.id)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.running

    @property
    def image(self) -> MetadataImage:
        """The committed metadata as the newest process knows it, or knew it."""
        return self.parts.image

    @property
    def logs(self) -> LogManager:
        """The logs of partitions of the newest process, which has opened them."""
        assert self.parts.logs is not None
        return self.parts.logs

    # --- what clients meet ------------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether any request of a client is answered."""
        return self.parts.replicas is not None and self._passes(self.parts.replicas.refuse_if_fenced)

    @property
    def takes_unreplicated_writes(self) -> bool:
        """Whether a write with acks 0 or 1 is accepted."""
        return (
            self.serves
            and self.parts.replicas is not None
            and self._passes(self.parts.replicas.refuse_past_lease)
        )

    @property
    def is_serving(self) -> bool:
        lifecycle = self.parts.lifecycle
        return (
            self.runs
            and self.is_up
            and lifecycle is not None
            and lifecycle.state is BrokerState.RUNNING
            and self.serves
        )

    @staticmethod
    def _passes(check: Any) -> bool:
        try:
            check()
        except KafkaError:
            return False
        return True

    # --- coming up --------------------------------------------------------------------------------------

    def start(self) -> None:
        """To be called from outside any process."""
        if self.alive or not self.may_start:
            return
        if self.may_mend:
            for path in data_dirs(self.world.options):
                self.disk.mend_directory(path)
        self._note_dead()
        self.starts += 1
        process = self.process = SimProcess(f"{self.id}.{self.starts}", self.clock.rate, self.id)
        process.machine = self
        self.parts, self.node, self.is_up = Parts(), None, False
        self.world.processes.append(process)
        self.world.loop.streams.power_on(self.id)
        self.world.log_event(self.id, f"starts (process {self.starts} on this machine)")
        self.watch.checker.started(self)
        boot = self.world.loop.create_task(self._boot(process), context=process.context)
        boot.add_done_callback(self._booted, context=self.world.outside)

    def _note_dead(self) -> None:
        """As :class:`pykraft.runtime.directory_lock.DirectoryLock`: after a power loss no secret is valid."""
        if self.starts:
            self._dead_secrets.append(self.incarnation.secret)
        if self._lost_power:
            self._dead_secrets.clear()
            self._lost_power = False
        self.incarnation = Incarnation(draw_uuid(self.rng.randbytes), tuple(self._dead_secrets[-16:]))

    def _booted(self, boot: Any) -> None:
        error = None if boot.cancelled() else boot.exception()
        if isinstance(error, Exception):
            self.ended(error)

    async def _boot(self, process: SimProcess) -> None:
        options = self.world.options
        session_ms = options.session_ms_of(self.world.seed, process.name)
        config = server_config(options, self.id, session_ms=session_ms)
        self.node = self.parts.node = Node(config, self._make_world(process))
        if self.is_broker:
            self._meet_client(process)
        await self.node.start()
        self.is_up = True
        self.world.log_event(self.id, "is up")

    def _make_world(self, process: SimProcess) -> NodeWorld:
        world = self.world
        return NodeWorld(
            disk=self.disk,
            clock=self.clock,
            new_rng=self._new_rng,
            executor=self._make_executor,  # type: ignore[arg-type]
            rpc_transport=lambda: world.rpc.transport(process),
            rpc_server=lambda: world.rpc.server(process),
            # No time passes inside a turn: the budget is one of bytes and steps.
            streams=StreamRuntime(asyncio.get_running_loop(), now_us=lambda: 0),
            fatal=self.fatal,
            exclude_from_gc=_nothing,
            incarnation=self.incarnation,
            loggers=ProcessLoggers(),
            partition_observer=ReplicaWatch(self, self.watch.checker),
            group_observer=ShardWatch(self, self.watch.checker),
        )

    def _new_rng(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    def _make_executor(self, threads: int, name: str) -> SimExecutor:
        return SimExecutor(self._new_rng(), self.world.options.max_flush_ms, threads)

    def _meet_client(self, process: SimProcess) -> None:
        """Send requests of a client to this broker repeatedly."""
        if self.process is process and process.alive:
            self.watch.checker.client_met(self)
            self.world.loop.call_later(
                0.02 + 0.2 * self.rng.random(), self._meet_client, process, context=process.context
            )

    # --- formatting -------------------------------------------------------------------------------------

    def format(self, *, first_voter: bool) -> None:
        """As ``pykraft storage format`` does; ``first_voter``: with the voters that the log begins with."""
        options = self.world.options
        format_directories(
            self.disk,
            server_config(options, self.id, session_ms=options.session_ms),
            self.world.cluster_id,
            options.features,
            self._directory_ids().__next__,
            self.clock.wall_ms(),
            initial_voters=self.world.voters if first_voter else None,
        )

    def replace_disk(self, directory_id: Uuid) -> None:
        """Replace the disk of a dead process by an empty one."""
        self.disk = CrashPointDisk(self._die_in_call)
        self.directory_id = directory_id
        self.format(first_voter=False)
        self.disk_is_new = True
        self.world.log_event(self.id, "has a new, empty disk")

    def fail_directory(self, rng: random.Random) -> Callable[[], None]:
        """Let a log directory, not the first, fail until the next start after what is returned was called.

        That function starts the node again, so that its replicas return.
        """
        path = rng.choice(data_dirs(self.world.options)[1:])
        self.disk.break_directory(path)
        self.may_mend = False
        broken = self.disk

        def undo() -> None:
            self.may_mend = True
            if self.disk is broken and self.disk.is_broken(path):
                self.kill(power_loss=False)
                self.disk.repair()
                self.start()

        return undo

    def stop_without_directory(self) -> None:
        """End a process that lost a log directory to one failed call: the next start uses it again."""
        logs = self.parts.logs if self.alive and self.is_broker and self.may_mend else None
        if logs is not None and logs.dirs.offline:
            self.kill(power_loss=False)
            self.disk.repair()

    def set_clock_error(self, error: float) -> None:
        """Let the clock run faster or slower by this share."""
        self.clock.set_rate(1 + error)
        if self.process is not None:
            self.process.rate = 1 + error

    @property
    def may_lose_tail(self) -> bool:
        """Whether the schedule lets this machine lose its unflushed data now."""
        options = self.world.options
        if options.keeps_tails:
            return False
        return not options.spares_tails or self.watch.checker.data.may_lose_tail(self.id)

    # --- going down -------------------------------------------------------------------------------------

    def kill(self, *, power_loss: bool) -> None:
        """End the process without notice. A power loss deletes or tears unflushed data; kill -9 leaves it."""
        process = self.process
        power_loss = power_loss and self.may_lose_tail
        if not self.alive and not power_loss:
            return
        if power_loss:
            self.world.loop.streams.power_off(self.id)
        if process is not None and process.alive:
            self.world.log_event(self.id, "is killed")
            self._end(process)
        if power_loss:
            self.world.log_event(self.id, "loses power, and with it what its disk had not flushed")
            self.disk.crash(self.rng)
            self.watch.checker.data.tail_lost(self.id)
            self._lost_power = True
        self.check_disk(power_fails=not power_loss and self._disk_rng.random() < 0.5)

    def check_disk(self, *, power_fails: bool) -> None:
        """Check that a start would open every file as it is or, if ``power_fails``, after a power loss."""
        copy = self.disk.copy()
        if power_fails:
            copy.crash(self._disk_rng)
        config = server_config(self.world.options, self.id, session_ms=self.world.options.session_ms)
        self.disks_checked += 1
        try:
            check_disk(copy, config, self.clock, self.disk.damaged_logs, self._stored_log_starts())
        except InvariantViolation as violation:
            self.world.failed(violation)

    def _stored_log_starts(self) -> dict[Replica, int]:
        """Return the log starts that the newest process has stored, none of them on a replaced disk."""
        replicas = () if self.parts.replicas is None else self.parts.replicas.table
        return {(one.topic, one.index, one.topic_id): one.log.stored_log_start_offset for one in replicas}

    def scrub(self) -> asyncio.Task[None]:
        """Read all logs once more, which a broker does every hour, and a schedule is shorter."""
        assert self.process is not None and self.parts.replicas is not None
        scrubbing = self.parts.replicas._scrubber.scrub_all()
        return self.world.loop.create_task(scrubbing, context=self.process.context)

    def check_replicas(self) -> None:
        """Whether each replica knows of its log what the log says."""
        for partition in self.parts.replicas.table if self.parts.replicas is not None else ():
            if partition.log.name in self.disk.damaged_logs:
                continue
            difference = find_difference(partition.log, partition.producers, is_loaded=False)
            if difference is not None:
                self.world.failed(InvariantViolation(DERIVED, f"{self.id}: {partition}: {difference}"))

    def _end(self, process: SimProcess) -> None:
        process.kill()
        self.world.loop.streams.end_process(process)

    def _die_in_call(self, power_loss: bool) -> None:
        """Kill the process inside a call to its disk, and start it again soon."""
        self.world.count_other("died in a disk call", str(self.id))
        self.kill(power_loss=power_loss)
        self.world.later(self.rng.choice((1, 50, 500, 2000)), self.start)

    def fatal(self, error: BaseException) -> None:
        """Handle a fatal fault that the node reports. Does not return."""
        self.ended(error)
        raise ProcessKilledError

    def ended(self, error: BaseException) -> None:
        """The process ended by itself: its disk is damaged, it was refused, or it has a bug."""
        if isinstance(error, ProcessKilledError) or not self.alive:
            return
        cause = error.__cause__ if isinstance(error, StartError) and error.__cause__ is not None else error
        expected = isinstance(cause, OSError | KafkaError) or (
            isinstance(cause, _BY_DAMAGE) and self.disk.was_damaged
        )
        if not expected:
            self.world.failed(cause)
            return
        self.world.log_event(self.id, f"ends by itself: {describe(cause)}")
        self.world.count_other("node exited by itself", str(self.id))
        # A disk that has refused a write or a flush works again only after the machine was started again.
        self.kill(power_loss=isinstance(cause, OSError))
        self.disk.repair()
        self.world.later(200 + self.rng.randrange(800), self.start)

    def stop(self) -> None:
        """Stop the node in order: its broker and its controller hand over their leaderships."""
        process, node = self.process, self.node
        if process is not None and process.alive and node is not None and self.is_up:
            self.world.log_event(self.id, "is asked to stop")
            self.world.loop.create_task(self._stop(process, node), context=process.context)

    async def _stop(self, process: SimProcess, node: Node) -> None:
        try:
            await node.stop()
        except OSError as error:  # index files are written last, so an injected fault may occur there
            self.ended(error)
        if process.alive:
            self._end(process)


def _nothing() -> None:
    """Do nothing: memory is not simulated."""
