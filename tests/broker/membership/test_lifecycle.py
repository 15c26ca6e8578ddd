"""What a broker may do, given its registration, its heartbeats, its lease and the metadata log."""

import asyncio

import pytest

from pykraft.broker.membership.lifecycle import BrokerLifecycle, BrokerState
from pykraft.broker.metadata.cache import MetadataCache
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE, BrokerRegistration, MetadataImage, PartitionRegistration
from pykraft.metadata_log.records import Endpoint


def acknowledge(
    lifecycle: BrokerLifecycle,
    sent_ms: int,
    *,
    is_caught_up: bool = True,
    is_fenced: bool = False,
    should_shut_down: bool = False,
    lease_ms: int = 9000,
) -> None:
    lifecycle.handle_heartbeat_answer(
        sent_ms,
        is_caught_up=is_caught_up,
        is_fenced=is_fenced,
        should_shut_down=should_shut_down,
        lease_ms=lease_ms,
    )


def registration(epoch: int, *, fenced: bool = False, broker_id: int = 1) -> BrokerRegistration:
    endpoints = (Endpoint("PLAINTEXT", f"h{broker_id}", 9092),)
    return BrokerRegistration(broker_id, epoch, Uuid(bytes(16)), endpoints, fenced=fenced)


@pytest.fixture
def running() -> BrokerLifecycle:
    lifecycle = BrokerLifecycle()
    lifecycle.handle_registered(10)
    lifecycle.set_ready()
    lifecycle.handle_registration_change(registration(10))
    acknowledge(lifecycle, 1000)
    return lifecycle


def test_broker_is_fenced_and_without_a_lease_at_first() -> None:
    lifecycle = BrokerLifecycle()
    assert lifecycle.is_fenced and not lifecycle.lease_valid(0)
    lifecycle.handle_registered(10)
    assert lifecycle.is_fenced and not lifecycle.lease_valid(0)
    assert lifecycle.next_heartbeat(5).want_fence


def state_of(lifecycle: BrokerLifecycle) -> BrokerState:
    """The current state: every call may change it."""
    return lifecycle.state


def test_states_follow_kafkas_order() -> None:
    lifecycle = BrokerLifecycle()
    lifecycle.handle_registered(10)
    acknowledge(lifecycle, 1, is_caught_up=False, is_fenced=True)
    assert state_of(lifecycle) is BrokerState.STARTING
    acknowledge(lifecycle, 2, is_fenced=True)
    assert state_of(lifecycle) is BrokerState.RECOVERY
    lifecycle.set_ready()
    assert not lifecycle.next_heartbeat(5).want_fence
    lifecycle.handle_registration_change(registration(10))
    acknowledge(lifecycle, 3)
    assert state_of(lifecycle) is BrokerState.RUNNING
    lifecycle.begin_controlled_shutdown()
    assert lifecycle.next_heartbeat(5).want_shut_down
    acknowledge(lifecycle, 4, is_fenced=True, should_shut_down=True)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN
    lifecycle.begin_controlled_shutdown()
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN


def test_answer_without_a_lease_extends_none(running: BrokerLifecycle) -> None:
    acknowledge(running, 5000, lease_ms=0)
    assert running.lease_valid(9999) and not running.lease_valid(10_000)


def test_older_lease_that_ends_later_is_kept(running: BrokerLifecycle) -> None:
    acknowledge(running, 3000, lease_ms=6000)
    assert running.lease_valid(9999) and not running.lease_valid(10_000)


def test_being_fenced_ends_the_lease_at_once(running: BrokerLifecycle) -> None:
    acknowledge(running, 2000, is_fenced=True, lease_ms=0)
    assert running.is_fenced and not running.lease_valid(2001)


def test_fence_in_the_metadata_log_counts_before_any_heartbeat(running: BrokerLifecycle) -> None:
    running.handle_registration_change(registration(10, fenced=True))
    assert running.is_fenced and not running.lease_valid(1001)


@pytest.mark.parametrize("found", [None, registration(11)])
def test_another_incarnation_in_the_metadata_log_fences(
    running: BrokerLifecycle, found: BrokerRegistration | None
) -> None:
    running.handle_registration_change(found)
    assert running.is_fenced


def test_metadata_log_never_unfences(running: BrokerLifecycle) -> None:
    running.handle_stale_epoch()
    running.handle_registration_change(registration(10))
    assert running.is_fenced


def test_own_unfencing_in_the_metadata_log_changes_nothing(running: BrokerLifecycle) -> None:
    running.handle_registration_change(registration(10))
    assert not running.is_fenced and running.lease_valid(1001)


@pytest.mark.parametrize("known", [None, registration(10, fenced=True), registration(9)])
def test_answer_does_not_unfence_a_broker_whose_own_image_is_behind_it(
    known: BrokerRegistration | None,
) -> None:
    """Others may lead its partitions by now: the records that say so precede the unfencing one."""
    lifecycle = BrokerLifecycle()
    lifecycle.handle_registered(10)
    lifecycle.set_ready()
    lifecycle.handle_registration_change(known)
    acknowledge(lifecycle, 1000)
    assert lifecycle.is_fenced and not lifecycle.lease_valid(1001)
    assert lifecycle.state is BrokerState.RECOVERY
    lifecycle.handle_registration_change(registration(10))
    assert lifecycle.is_fenced
    acknowledge(lifecycle, 1020)
    assert not lifecycle.is_fenced and lifecycle.lease_valid(1021)
    assert lifecycle.state is BrokerState.RUNNING


def test_answer_that_was_given_before_the_fence_does_not_undo_it(running: BrokerLifecycle) -> None:
    running.handle_registration_change(registration(10, fenced=True))
    acknowledge(running, 2000)
    assert running.is_fenced and not running.lease_valid(2001)


# --- the metadata cache ----------------------------------------------------------------------------------


def image_of(*registrations: BrokerRegistration, offset: int = 1) -> MetadataImage:
    brokers = EMPTY_IMAGE.brokers
    for item in registrations:
        brokers = brokers.set(item.id, item)
    return MetadataImage(offset=offset, brokers=brokers)


def test_cache_names_only_brokers_that_are_not_fenced() -> None:
    image = image_of(registration(2, broker_id=2), registration(1), registration(3, fenced=True, broker_id=3))
    cache = MetadataCache(1, "c", image)
    assert [broker.id for broker in cache.brokers()] == [1, 2, 3]
    assert cache.is_usable(2) and not cache.is_usable(3) and not cache.is_usable(4)
    found = cache.endpoint(2, "PLAINTEXT")
    assert found is not None and found.host == "h2"
    assert cache.endpoint(2, "SSL") is None
    assert cache.endpoint(3, "PLAINTEXT") is None and cache.endpoint(4, "PLAINTEXT") is None
    partition = PartitionRegistration((1, 3, 4), (1,), 1, 0, 0)
    assert cache.offline_replicas(partition) == [3, 4]


async def test_wait_ends_with_the_matching_image_and_others_continue() -> None:
    cache = MetadataCache(1, "c", EMPTY_IMAGE)
    first = asyncio.ensure_future(cache.wait_until(lambda image: image.offset >= 1, 10_000))
    second = asyncio.ensure_future(cache.wait_until(lambda image: image.offset >= 2, 10_000))
    gone = asyncio.ensure_future(cache.wait_until(lambda image: image.offset >= 9, 10_000))
    await asyncio.sleep(0)
    gone.cancel()
    for offset in (1, 2):
        image = image_of(registration(1), offset=offset)
        cache.publish(MetadataDelta(cache.image, image), image)
        assert await (first if offset == 1 else second)
        assert second.done() is (offset == 2)
    assert await cache.wait_until(lambda image: image.offset == 2, 0)
    assert not await cache.wait_until(lambda image: image.offset == 3, 1)
