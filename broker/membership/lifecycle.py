"""What a broker knows about its own standing with the controller, and what that lets it do.

A broker is fenced until the controller says otherwise. Once unfenced it holds a lease: as long as the
controller granted with its answer to a heartbeat (less than a session timeout), counted on the broker's own
monotonic clock from the moment it *sent* that heartbeat. An answer unfences only a broker whose own image
says that it is unfenced: behind that record nothing is left of what it led before it was fenced. Past its
lease it cannot know whether others have been told to take over, so it gives only answers that are safe either
way (ARCHITECTURE.md, Fencing). Decides nothing about time itself: ``now_ms`` is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from pykraft.metadata_log.image import BrokerRegistration


class BrokerState(Enum):
    """Kafka's broker states, in the order a broker passes through them."""

    STARTING = auto()
    RECOVERY = auto()
    RUNNING = auto()
    PENDING_CONTROLLED_SHUTDOWN = auto()
    SHUTTING_DOWN = auto()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What the next heartbeat says."""

    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool


class BrokerLifecycle:
    """The state of one broker's registration, session and lease."""

    def __init__(self) -> None:
        self._lease_end_ms: int | None = None
        self._ready = False
        self._logged: BrokerRegistration | None = None
        self.state = BrokerState.STARTING
        self.epoch = -1
        self.is_registered = False
        self.is_fenced = True

    def lease_valid(self, now_ms: int) -> bool:
        """Whether no controller can have fenced this broker yet."""
        return self._lease_end_ms is not None and now_ms < self._lease_end_ms

    def lease_left_ms(self, now_ms: int) -> int:
        """For how long the lease holds yet; 0 without one."""
        return 0 if self._lease_end_ms is None else max(0, self._lease_end_ms - now_ms)

    def lapsed_ms(self, now_ms: int) -> int | None:
        """For how long the lease has been over; 0 while it holds, None if there was none since the fence."""
        return None if self._lease_end_ms is None else max(0, now_ms + 1 - self._lease_end_ms)

    def handle_registered(self, epoch: int) -> None:
        """The controller took the registration: a new incarnation begins fenced."""
        self.epoch = epoch
        self.is_registered = True
        self._fence()

    def handle_stale_epoch(self) -> None:
        """Another incarnation holds this id: nothing may be served until registered again.

        There is nothing left to hand over either. The epoch is kept: whoever is shown it refuses it.
        """
        self.is_registered = False
        self._fence()
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.state = BrokerState.SHUTTING_DOWN

    def handle_registration_change(self, registration: BrokerRegistration | None) -> None:
        """The metadata log says something new about this broker's id; it may know before any heartbeat does.

        It never unfences: that takes an answer to a heartbeat, and with it a lease.
        """
        self._logged = registration
        if not self._is_unfenced_in_the_log:
            self._fence()

    @property
    def _is_unfenced_in_the_log(self) -> bool:
        logged = self._logged
        return logged is not None and not logged.fenced and logged.epoch == self.epoch

    def _fence(self) -> None:
        self.is_fenced = True
        self._lease_end_ms = None

    def set_ready(self) -> None:
        """Local recovery is done: ask to be unfenced."""
        self._ready = True

    def begin_controlled_shutdown(self) -> None:
        """Ask the controller to move leaderships away."""
        if self.state is not BrokerState.SHUTTING_DOWN:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN

    def next_heartbeat(self, metadata_offset: int) -> Heartbeat:
        """The heartbeat to send now; ``metadata_offset`` is the last offset in the local image."""
        return Heartbeat(
            broker_epoch=self.epoch,
            current_metadata_offset=metadata_offset,
            want_fence=not self._ready,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        )

    def handle_heartbeat_answer(
        self, sent_ms: int, *, is_caught_up: bool, is_fenced: bool, should_shut_down: bool, lease_ms: int
    ) -> None:
        """Take an acknowledgement of the heartbeat sent at ``sent_ms`` (monotonic).

        The answer that unfences may come before the metadata that it rests on: until that is applied, the
        broker may still take itself for the leader of what others lead by now. The next heartbeat asks again.
        """
        is_fenced = is_fenced or not self._is_unfenced_in_the_log
        if is_fenced:
            self._fence()
        else:
            self.is_fenced = False
            if lease_ms > 0:  # else it promises nothing, not even about the past
                self._lease_end_ms = max(self._lease_end_ms or 0, sent_ms + lease_ms)
        if should_shut_down:
            self.state = BrokerState.SHUTTING_DOWN
        elif self.state is BrokerState.STARTING and is_caught_up:
            self.state = BrokerState.RECOVERY
        if self.state is BrokerState.RECOVERY and not is_fenced:
            self.state = BrokerState.RUNNING
