"""The state of a broker's registration, session and lease, and what it may do in each.

A broker is fenced until the controller unfences it. An unfenced broker holds a lease: for the time that the
controller granted in its answer to a heartbeat (less than a session timeout), counted on the broker's own
monotonic clock from the moment it *sent* that heartbeat. An answer unfences only a broker whose own image
says that it is unfenced: with that record applied, none of its roles from before the fence is left. After the
lease has expired it cannot know whether other leaders have been elected, so it gives only answers that are
safe either way (ARCHITECTURE.md, Fencing). It reads no clock: ``now_ms`` is an argument.
"""

from __future__ import annotations

from enum import Enum, auto

from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.image import BrokerRegistration


class BrokerState(Enum):
    """Kafka's broker states, in the order in which a broker passes through them."""

    STARTING = auto()
    RECOVERY = auto()
    RUNNING = auto()
    PENDING_CONTROLLED_SHUTDOWN = auto()
    SHUTTING_DOWN = auto()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The contents of the next heartbeat."""

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
        """Whether the lease still holds: no controller can have fenced this broker yet."""
        return self._lease_end_ms is not None and now_ms < self._lease_end_ms

    def lease_left_ms(self, now_ms: int) -> int:
        """How long the lease still holds; 0 without a lease."""
        return 0 if self._lease_end_ms is None else max(0, self._lease_end_ms - now_ms)

    def expired_ms(self, now_ms: int) -> int | None:
        """How long ago the lease expired; 0 while it holds, None if there was none since the last fence."""
        return None if self._lease_end_ms is None else max(0, now_ms + 1 - self._lease_end_ms)

    def handle_registered(self, epoch: int) -> None:
        """The controller accepted the registration: the new incarnation starts fenced."""
        self.epoch = epoch
        self.is_registered = True
        self._fence()

    def handle_stale_epoch(self) -> None:
        """Another incarnation has this id: this one must serve nothing until it has registered again.

        It has no leaderships to hand over either. The epoch is kept: all nodes refuse it.
        """
        self.is_registered = False
        self._fence()
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.state = BrokerState.SHUTTING_DOWN

    def handle_registration_change(self, registration: BrokerRegistration | None) -> None:
        """The metadata log has a newer registration of this broker's id, perhaps before a heartbeat tells so.

        It never unfences the broker: that takes an answer to a heartbeat, and with it a lease.
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
        """Ask the controller to move this broker's leaderships to others."""
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

        An answer that unfences may arrive before the metadata that it relies on: until that is applied, the
        broker may still believe that it leads partitions that others lead by now. Then it stays fenced, and
        the next heartbeat asks again.
        """
        is_fenced = is_fenced or not self._is_unfenced_in_the_log
        if is_fenced:
            self._fence()
        else:
            self.is_fenced = False
            if lease_ms > 0:  # otherwise it grants no lease, not even an expired one
                self._lease_end_ms = max(self._lease_end_ms or 0, sent_ms + lease_ms)
        if should_shut_down:
            self.state = BrokerState.SHUTTING_DOWN
        elif self.state is BrokerState.STARTING and is_caught_up:
            self.state = BrokerState.RECOVERY
        if self.state is BrokerState.RECOVERY and not is_fenced:
            self.state = BrokerState.RUNNING
