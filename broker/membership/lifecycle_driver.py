"""Registers the broker, sends its heartbeats and shuts it down: the timing around :class:`BrokerLifecycle`.

A heartbeat that the controller refuses with STALE_BROKER_EPOCH means that another incarnation took this id,
or that the registration was removed: the broker stops serving at once and tries to register again. A
heartbeat without an answer is soon sent again, because the lease is running out. So is one whose answer
grants a lease that would end soon after the next heartbeat: a new controller grants none, and a broker that
was far behind gets a short one, until a later heartbeat shows that the broker has caught up. A failed log
directory is reported at once. If the controller cannot be told for too long, the broker halts: it may be
named as the leader of partitions that it cannot serve.

A broker without a controller waits, however long: its process may be one of the controllers that the others
wait for. Only a controller's refusal ends a start, and nothing ends a broker that has been registered once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

from pykraft.broker.config import BrokerConfig
from pykraft.broker.membership.controller_channel import ControllerChannel, endpoint_messages
from pykraft.broker.membership.lifecycle import BrokerLifecycle, BrokerState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import BrokerRegistration, MetadataImage
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint
from pykraft.runtime.clock import Clock

logger = logging.getLogger(__name__)

_FAST_HEARTBEAT_MS = 20
"""The pause between heartbeats while the broker waits to be unfenced, or to be shut down."""

_SHUTDOWN_HEARTBEAT_MS = 100
"""The longest pause while another broker shuts down, which waits until all others report that they know."""

_RETRY_MS = 100
"""The pause after a heartbeat that failed or left no lease, and between attempts to register."""

_NO_CONTROLLER_MS = 5000
"""How long a controlled shutdown waits without an answer from any controller: longer than an election takes.
The last node of a cluster that is being stopped has no quorum left to ask.
"""


class LifecycleDriver:
    """Registers one broker (:meth:`register`) and sends its heartbeats (:meth:`run`) until it may shut down.

    ``caught_up`` is set once the local image holds this incarnation's registration, ``running`` once the
    controller has unfenced the broker, which it does only after :meth:`BrokerLifecycle.set_ready`.
    ``dead_incarnation_secrets``: the secrets of earlier processes of this broker that have certainly ended,
    so that the controller need not wait for their sessions.
    ``log_dir_ids``: the log directories that work, ``offline_log_dir_ids`` those that do not,
    ``cordoned_log_dir_ids`` those that get no new replicas.
    """

    def __init__(
        self,
        config: BrokerConfig,
        lifecycle: BrokerLifecycle,
        channel: ControllerChannel,
        clock: Clock,
        *,
        incarnation_id: Uuid,
        endpoints: Sequence[Endpoint],
        log_dir_ids: Callable[[], tuple[Uuid, ...]],
        metadata_offset: Callable[[], int],
        features: dict[str, tuple[int, int]],
        dead_incarnation_secrets: tuple[bytes, ...] = (),
        offline_log_dir_ids: Callable[[], tuple[Uuid, ...]] = lambda: (),
        cordoned_log_dir_ids: Callable[[], tuple[Uuid, ...]] = lambda: (),
    ) -> None:
        self._config = config
        self._lifecycle = lifecycle
        self._channel = channel
        self._clock = clock
        self._incarnation_id = incarnation_id
        self._endpoints = endpoints
        self._log_dir_ids = log_dir_ids
        self._offline_log_dir_ids = offline_log_dir_ids
        self._cordoned_log_dir_ids = cordoned_log_dir_ids
        self._reported_cordoned: tuple[Uuid, ...] | None = None
        #: The directories of the first registration: those that have failed since are among them.
        self._registered_dirs: tuple[Uuid, ...] = ()
        self._reported_dirs: tuple[Uuid, ...] = ()
        self._unreported_since_ms: int | None = None
        self._metadata_offset = metadata_offset
        self._features = features
        self._dead_incarnation_secrets = dead_incarnation_secrets
        self._others_shutting_down = False
        self._failed = False
        self._answered_ms = 0
        self._was_fenced = True
        self._wakeup = asyncio.Event()
        self.caught_up = asyncio.Event()
        self.running = asyncio.Event()
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        """Send heartbeats until the controller lets the broker shut down."""
        while self._lifecycle.state is not BrokerState.SHUTTING_DOWN:
            await self._heartbeat()
            if self._lifecycle.state is not BrokerState.STARTING:
                self.caught_up.set()
            if self._lifecycle.state is BrokerState.RUNNING:
                self.running.set()
            await self._pause()
        self.stopped.set()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take a newer image, in which brokers may have changed, this one among them."""
        node_id = self._config.node_id
        if node_id in delta.changed_brokers:
            self._lifecycle.handle_registration_change(image.brokers.get(node_id))
            if self._lifecycle.is_fenced:
                self._wakeup.set()  # this may be what the next heartbeat waits for
        if delta.changed_brokers:
            self.handle_brokers(image.brokers)

    def set_ready(self) -> None:
        """The replicas have their roles: ask to be unfenced, now."""
        self._lifecycle.set_ready()
        self._wakeup.set()

    def handle_brokers(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """The brokers of the cluster, as of a newer image."""
        self._others_shutting_down = any(
            broker.in_controlled_shutdown and not broker.fenced and broker.id != self._config.node_id
            for broker in brokers.values()
        )
        if self._others_shutting_down:
            self._wakeup.set()

    async def shut_down(self, timeout_ms: int) -> None:
        """Ask for a controlled shutdown and wait until leaderships have moved, at most ``timeout_ms``.

        Gives up earlier if no controller has answered for some seconds.
        """
        began_ms = self._clock.monotonic_ms()
        self._lifecycle.begin_controlled_shutdown()
        self._wakeup.set()
        while not self.stopped.is_set():
            last_answer_ms = max(began_ms, self._answered_ms)
            until_ms = min(began_ms + timeout_ms, last_answer_ms + _NO_CONTROLLER_MS)
            if until_ms <= (now_ms := self._clock.monotonic_ms()):
                logger.warning("gave up the controlled shutdown after %d ms", now_ms - began_ms)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((until_ms - now_ms) / 1000):
                    await self.stopped.wait()

    async def register(self, stopped_in_order_at_epoch: int | None = None) -> None:
        """Register this process, however long no controller answers. :class:`KafkaError` if it is refused and
        has not been registered before.

        ``stopped_in_order_at_epoch``: the broker epoch at which the logs were last flushed and closed.
        """
        self._registered_dirs = self._registered_dirs or self._log_dir_ids()
        request = pb.RegisterBrokerRequest(
            cluster_id=self._config.cluster_id,
            broker_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            endpoints=endpoint_messages(self._endpoints),
            features=[
                pb.Feature(name=name, min_level=low, max_level=high)
                for name, (low, high) in sorted(self._features.items())
            ],
            rack=self._config.rack,
            log_dirs=list(self._registered_dirs),
            previous_broker_epoch=self._previous_broker_epoch(stopped_in_order_at_epoch),
            dead_incarnation_secrets=list(self._dead_incarnation_secrets),
        )
        refusals = _Refusals(self._config, is_final=self._lifecycle.epoch < 0)
        while True:
            try:
                response = await self._channel.call(
                    "RegisterBroker",
                    request,
                    pb.RegisterBrokerResponse.FromString,
                    self._config.initial_registration_timeout_ms,
                )
            except KafkaError as error:
                await asyncio.sleep(refusals.pause_ms(error, self._clock.monotonic_ms()) / 1000)
                continue
            self._lifecycle.handle_registered(response.broker_epoch)
            logger.info("registered broker %d, epoch %d", self._config.node_id, response.broker_epoch)
            return

    def _previous_broker_epoch(self, stopped_in_order_at_epoch: int | None) -> int:
        """The epoch as of which the logs are complete: this process's or the last orderly stop's, or -1."""
        if self._lifecycle.epoch >= 0:
            return self._lifecycle.epoch
        return -1 if stopped_in_order_at_epoch is None else stopped_in_order_at_epoch

    def handle_failed_log_dir(self) -> None:
        """A log directory has failed: report it now."""
        if self._unreported_since_ms is None:
            self._unreported_since_ms = self._clock.monotonic_ms()
        self._wakeup.set()

    def handle_cordoned_log_dirs(self) -> None:
        """Other directories than before are cordoned: report it now."""
        self._wakeup.set()

    def _known_cordoned(self) -> tuple[Uuid, ...] | None:
        """Directories without new replicas; None until this broker has read its own properties there."""
        is_starting = self._lifecycle.state is BrokerState.STARTING
        return None if is_starting else self._cordoned_log_dir_ids()

    def _has_told_directories(self) -> bool:
        """Whether the controller knows the newest state of the log directories."""
        told = self._reported_dirs, self._reported_cordoned
        return told == (self._offline_log_dir_ids(), self._known_cordoned())

    def _check_reported(self) -> None:
        """Raise :class:`TimeoutError` if a failed directory could not be reported for too long."""
        since_ms, limit_ms = self._unreported_since_ms, self._config.log_dir_failure_timeout_ms
        if since_ms is not None and self._clock.monotonic_ms() - since_ms >= limit_ms:
            raise TimeoutError(f"a failed log directory could not be reported within {limit_ms} ms")

    async def _heartbeat(self) -> None:
        self._wakeup.clear()  # what wakes this task from now on may not be in this heartbeat
        self._log_fencing_state()  # the metadata log may have fenced it meanwhile
        self._check_reported()
        offline_dirs, cordoned = self._offline_log_dir_ids(), self._known_cordoned()
        heartbeat = self._lifecycle.next_heartbeat(self._metadata_offset())
        sent_ms = self._clock.monotonic_ms()
        try:
            response = await self._channel.call(
                "BrokerHeartbeat",
                pb.BrokerHeartbeatRequest(
                    broker_id=self._config.node_id,
                    broker_epoch=heartbeat.broker_epoch,
                    current_metadata_offset=heartbeat.current_metadata_offset,
                    want_fence=heartbeat.want_fence,
                    want_shut_down=heartbeat.want_shut_down,
                    offline_log_dirs=list(offline_dirs),
                    cordoned_log_dirs=None if cordoned is None else pb.LogDirs(ids=list(cordoned)),
                ),
                pb.BrokerHeartbeatResponse.FromString,
                # One attempt only: the lease of a later one would be counted from the start of this one.
                timeout_ms=self._config.heartbeat_interval_ms,
                attempt_timeout_ms=self._config.heartbeat_interval_ms,
            )
        except KafkaError as error:
            if error.code is ErrorCode.STALE_BROKER_EPOCH:
                logger.error("the controller no longer knows epoch %d of this broker", heartbeat.broker_epoch)
                self._lifecycle.handle_stale_epoch()
                if self._lifecycle.state is not BrokerState.SHUTTING_DOWN:
                    await self.register()
            else:
                logger.warning("heartbeat failed: %s", error)
                self._failed = True
            return
        self._failed = False
        self._reported_dirs, self._reported_cordoned = offline_dirs, cordoned
        if offline_dirs == self._offline_log_dir_ids():
            self._unreported_since_ms = None
        self._answered_ms = self._clock.monotonic_ms()
        self._lifecycle.handle_heartbeat_answer(
            sent_ms,
            is_caught_up=response.is_caught_up,
            is_fenced=response.is_fenced,
            should_shut_down=response.should_shut_down,
            lease_ms=response.lease_ms,
        )
        self._log_fencing_state()

    def _log_fencing_state(self) -> None:
        if self._lifecycle.is_fenced is not self._was_fenced:
            self._was_fenced = self._lifecycle.is_fenced
            if not self._was_fenced:
                logger.info("broker %d is unfenced, epoch %d", self._config.node_id, self._lifecycle.epoch)
            elif self._lifecycle.state in (
                BrokerState.PENDING_CONTROLLED_SHUTDOWN,
                BrokerState.SHUTTING_DOWN,
            ):
                logger.info("broker %d has handed over its leaderships and is fenced", self._config.node_id)
            else:
                logger.error("this broker has been fenced: it serves no client until it is unfenced")

    async def _pause(self) -> None:
        """Wait until the next heartbeat is due, or until there is something to tell."""
        if not self._failed and not self._has_told_directories():
            return
        waiting = (
            self._lifecycle.is_fenced or self._lifecycle.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        )
        pause_ms = _FAST_HEARTBEAT_MS if waiting else self._config.heartbeat_interval_ms
        if not waiting:
            left_ms = self._lifecycle.lease_left_ms(self._clock.monotonic_ms())
            pause_ms = min(pause_ms, max(left_ms // 2, _RETRY_MS))
        if self._others_shutting_down:
            pause_ms = min(_SHUTDOWN_HEARTBEAT_MS, pause_ms)
        if self._failed:
            pause_ms = min(_RETRY_MS, self._config.heartbeat_interval_ms)
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._wakeup.wait()
        except TimeoutError:
            pass


class _Refusals:
    """Handles a registration that is refused or remains undecided.

    ``is_final``: a refusal ends the start of this process. That another process has this id is a refusal only
    if it lasts: the controller may still have the session of an earlier process, which will expire.
    """

    def __init__(self, config: BrokerConfig, *, is_final: bool) -> None:
        self._config = config
        self._is_final = is_final
        self._duplicate_since_ms: int | None = None
        self._logged = ""

    def pause_ms(self, error: KafkaError, now_ms: int) -> int:
        """How long to wait before the next attempt. Raises the error if there is none."""
        if error.code is ErrorCode.REQUEST_TIMED_OUT:
            self._log("this broker is not registered yet, and waits", error)
            return _RETRY_MS
        if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._duplicate_since_ms = since_ms = self._duplicate_since_ms or now_ms
            if self._is_final and now_ms - since_ms >= self._config.initial_registration_timeout_ms:
                raise error
            self._log("waiting for the session of an earlier process to expire", error)
            return _RETRY_MS
        if self._is_final:
            raise error
        self._log("this broker is not registered again", error)
        return self._config.heartbeat_interval_ms

    def _log(self, what: str, error: KafkaError) -> None:
        if error.message != self._logged:
            self._logged = error.message
            logger.warning("%s: %s", what, error.message)
