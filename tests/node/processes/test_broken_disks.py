"""Damage of a node's directories: each kind ends in a clear message and a safe stop, or in a repair.

A node that has run is copied, damaged, and started again. Refused directories stay as they were found, so
that an operator can examine and repair them.
"""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import iter_headers
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY
from pykraft.metadata_log.bootstrap import FILE_NAME as BOOTSTRAP_FEATURES_FILE
from pykraft.metadata_log.codec import decode_record
from pykraft.metadata_log.records import PartitionChangeRecord
from pykraft.node.errors import StartError
from pykraft.node.node import Node
from pykraft.node.run import make_world
from pykraft.quorum.bootstrap import BOOTSTRAP_CHECKPOINT
from pykraft.quorum.flushed_mark import FLUSHED_OFFSET_FILE
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.node.sites import SEGMENT, TIMEOUT_S, Site, create, flip_a_byte, run_node, topics

pytestmark = pytest.mark.slow

with_both_kinds_of_voters = pytest.mark.parametrize(
    "site", [False, True], ids=["voters by id", "voters in the log"], indirect=True
)


def reused_node_id(site: Site) -> Path:
    path = site.second / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", "node.id=2"))
    return site.second


def missing_directory(site: Site) -> Path:
    shutil.rmtree(site.second)
    return site.second


def second_metadata_log(site: Site) -> Path:
    shutil.copytree(site.metadata, site.second / METADATA_LOG_DIRECTORY)
    return site.second


def missing_metadata_log(site: Site) -> Path:
    shutil.rmtree(site.metadata)
    return site.metadata


def emptied_metadata_log(site: Site) -> Path:
    missing_metadata_log(site)
    site.metadata.mkdir()
    return site.metadata


def metadata_log_without_its_records(site: Site) -> Path:
    for path in site.metadata.iterdir():
        if path.name not in ("quorum-state", BOOTSTRAP_CHECKPOINT):
            path.unlink()
    return site.metadata / FLUSHED_OFFSET_FILE


def corrupt_quorum_state(site: Site) -> Path:
    path = site.metadata / "quorum-state"
    path.write_text(path.read_text()[:-5])
    return path


def missing_quorum_state(site: Site) -> Path:
    (site.metadata / "quorum-state").unlink()
    return Path("quorum-state")


def corrupt_features(site: Site) -> Path:
    return flip_a_byte(site.first / BOOTSTRAP_FEATURES_FILE, 70)


def log_corrupt_in_the_middle(site: Site) -> Path:
    path = site.metadata / SEGMENT
    (_, _), (second, _), *_ = iter_headers(path.read_bytes())
    return flip_a_byte(path, second + 70)


def metadata_replaced_by_zeros(site: Site) -> Path:
    path = site.metadata / SEGMENT
    path.write_bytes(bytes(path.stat().st_size))
    return path


DAMAGES: dict[str, tuple[Callable[[Site], Path], type[Exception], str]] = {
    "reused node id": (reused_node_id, ConfigError, "belongs to node 2"),
    "missing directory": (missing_directory, ConfigError, "is not formatted"),
    "extra metadata log": (second_metadata_log, ConfigError, "holds a metadata log"),
    "missing metadata log": (missing_metadata_log, ConfigError, "its metadata log is lost"),
    "emptied metadata log": (emptied_metadata_log, ConfigError, "its metadata log is lost"),
    "no records": (metadata_log_without_its_records, StartError, "not as formatting leaves it"),
    "corrupt quorum-state": (corrupt_quorum_state, StartError, "is corrupt"),
    "missing quorum-state": (missing_quorum_state, StartError, "lost or replaced"),
    "corrupt bootstrap.checkpoint": (corrupt_features, StartError, "is damaged"),
    "log corrupt in the middle": (log_corrupt_in_the_middle, StartError, "at position"),
}


@with_both_kinds_of_voters
@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_refused_by_name_and_left_unchanged(site: Site, case: str) -> None:
    damage, kind, message = DAMAGES[case]
    named = damage(site)
    before = site.files()
    with pytest.raises(kind) as refused:
        asyncio.run(run_node(site))
    assert message in str(refused.value) and str(named) in str(refused.value)
    after = site.files()
    assert {path: after.get(path) for path in before} == before


def not_a_directory(site: Site) -> Path:
    shutil.rmtree(site.second)
    site.second.write_text("a file")
    return site.second


def unreadable_properties(site: Site) -> Path:
    (site.second / "meta.properties").write_text("nonsense")
    return site.second


def assigned_topics(site: Site) -> set[Uuid]:
    """The topics of the replicas whose directory is in the metadata log."""
    data = (site.metadata / SEGMENT).read_bytes()
    records = [
        decode_record(record.value)
        for position, header in iter_headers(data)
        if not header.is_control
        for record in decode_batch(data[position : position + header.size_bytes])
        if record.value is not None
    ]
    changes = [record for record in records if isinstance(record, PartitionChangeRecord)]
    return {change.topic_id for change in changes if change.directories}


UNUSABLE = {
    "not a directory": not_a_directory,
    "corrupt meta.properties": unreadable_properties,
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_directory_that_cannot_be_used_costs_its_replicas_until_it_is_repaired(
    site: Site, case: str
) -> None:
    def wait_until_known() -> None:
        wait_until("the controller knows both directories", lambda: len(assigned_topics(site)) == 2, 10)

    asyncio.run(run_node(site, wait_until_known))
    here = {path.name for path in site.first.glob("t?-0")}
    there = {path.name for path in site.second.glob("t?-0")}
    assert len(here) == len(there) == 1, "one partition in each"
    kept = site.root / "kept"
    shutil.copytree(site.second, kept)
    UNUSABLE[case](site)

    def leaders() -> dict[str, int | None]:
        with AdminClient(site.broker) as admin:
            return {
                f"{topic.name}-0": topic.partitions[0].leader for topic in admin.describe_topics(["t1", "t2"])
            }

    found: list[dict[str, int | None]] = []

    def work() -> None:
        wait_until("the partition that is there is led", lambda: leaders()[min(here)] == 1, 10)
        found.append(leaders())
        create(site, "t3")

    assert asyncio.run(run_node(site, work)) == []
    assert found == [{min(here): 1, min(there): None}]
    assert (site.first / "t3-0").is_dir() and not (site.first / min(there)).exists()
    shutil.rmtree(site.second) if site.second.is_dir() else site.second.unlink()
    shutil.copytree(kept, site.second)
    assert (
        asyncio.run(run_node(site, lambda: wait_until("all are", lambda: set(leaders().values()) == {1}, 10)))
        == []
    )


def test_damaged_partition_is_offline_until_an_operator_elects_an_empty_replica(site: Site) -> None:
    (directory,) = [*site.first.glob("t1-0"), *site.second.glob("t1-0")]
    flip_a_byte(directory / "partition.metadata", 15)

    def work() -> None:
        with AdminClient(site.broker) as admin:

            def leader(topic: str) -> int | None:
                return admin.describe_topics([topic])[0].partitions[0].leader

            wait_until("the other partition is led again", lambda: leader("t2") == 1, 10)
            (lost,) = admin.describe_topics(["t1"])[0].partitions
            assert (lost.leader, lost.isr, lost.offline_replicas) == (None, (), (1,))
            (outcome,) = admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("t1", 0)])
            assert outcome.error is None
            (begun,) = admin.describe_topics(["t1"])[0].partitions
            assert (begun.leader, begun.isr, begun.offline_replicas) == (1, (1,), ())
            wait_until("the partition starts over", directory.is_dir, 10)

    assert asyncio.run(run_node(site, work)) == []
    assert (directory.parent / "t1-0.00000000-damaged" / "partition.metadata").exists()


@pytest.mark.parametrize("site", [True], indirect=True)
def test_corrupt_first_voters_are_refused_by_name(site: Site) -> None:
    path = flip_a_byte(site.metadata / BOOTSTRAP_CHECKPOINT, 70)
    with pytest.raises(StartError) as refused:
        asyncio.run(run_node(site))
    assert str(path) in str(refused.value)


@pytest.fixture
def snapshots(site: Site) -> list[Path]:
    """The site has written snapshots and deleted the log before the last; t20 is its newest topic."""
    names = [f"t{n}" for n in range(3, 21)]
    overrides = {
        "metadata_log_max_record_bytes_between_snapshots": "500",
        "metadata_log_segment_bytes": "700",
        "metadata_max_retention_bytes": "1",
    }

    def work() -> None:
        create(site, *names)
        wait_until("the log is shortened", lambda: not (site.metadata / SEGMENT).exists(), PATIENCE_S)

    assert asyncio.run(run_node(site, work, None, **overrides)) == []
    return sorted(path for path in site.metadata.glob("*.checkpoint") if path.name != BOOTSTRAP_CHECKPOINT)


def test_node_starts_from_its_snapshot_when_the_log_before_it_is_gone(
    site: Site, snapshots: list[Path]
) -> None:
    found: set[str] = set()
    assert snapshots and asyncio.run(run_node(site, lambda: found.update(topics(site)))) == []
    assert found >= {f"t{n}" for n in range(1, 21)}


def test_corrupt_snapshot_is_refused_by_name_and_left_unchanged(site: Site, snapshots: list[Path]) -> None:
    damaged = flip_a_byte(snapshots[-1], 300)
    before = damaged.read_bytes()
    with pytest.raises(StartError) as refused:
        asyncio.run(run_node(site))
    assert str(damaged) in str(refused.value) and "at position" in str(refused.value)
    assert damaged.read_bytes() == before


def test_missing_snapshot_is_refused_when_the_log_does_not_reach_back(
    site: Site, snapshots: list[Path]
) -> None:
    for path in snapshots:
        path.unlink()
    with pytest.raises(StartError) as refused:
        asyncio.run(run_node(site))
    assert "snapshot" in str(refused.value)


def test_unfinished_snapshot_is_removed(site: Site, snapshots: list[Path]) -> None:
    half = snapshots[-1].with_name(snapshots[-1].name + ".part")
    half.write_bytes(snapshots[-1].read_bytes()[:100])
    assert asyncio.run(run_node(site)) == []
    assert not half.exists()


def test_torn_tail_is_truncated_and_nothing_acknowledged_is_lost(site: Site) -> None:
    path = site.metadata / SEGMENT
    whole = path.read_bytes()
    torn = encode_batch([RecordInput(None, b"x" * 100, (), 0)], base_offset=10_000, leader_epoch=1)
    path.write_bytes(whole + torn[:80])
    found: set[str] = set()
    assert asyncio.run(run_node(site, lambda: found.update(topics(site)))) == []
    assert found >= {"t1", "t2"}
    assert path.read_bytes().startswith(whole)


def test_log_newer_than_the_code_halts_the_node_with_a_message(site: Site) -> None:
    path = site.metadata / SEGMENT
    *_, (_, last) = iter_headers(path.read_bytes())
    newer = encode_batch(
        [RecordInput(None, b"\x93\x63\x00\x00", (), 0)],
        base_offset=last.next_offset,
        leader_epoch=last.partition_leader_epoch,
    )
    path.write_bytes(path.read_bytes() + newer)
    (site.metadata / FLUSHED_OFFSET_FILE).unlink()  # it knows of no such record
    with pytest.raises((StartError, TimeoutError, ExceptionGroup)) as refused:
        asyncio.run(start_until_halted(site))
    assert "the log is newer than the code" in str(refused.value)


def test_single_voter_that_lost_flushed_records_starts_when_an_operator_decides_so(site: Site) -> None:
    path, mark = site.metadata / SEGMENT, site.metadata / FLUSHED_OFFSET_FILE
    flip_a_byte(path, path.stat().st_size - 1)
    for _ in range(2):
        with pytest.raises(StartError, match="records are lost") as refused:
            asyncio.run(run_node(site))
        assert str(mark) in str(refused.value), "the way out"
    mark.unlink()
    found: set[str] = set()
    assert asyncio.run(run_node(site, lambda: found.update(topics(site)))) == []
    assert found >= {"t1"}


async def start_until_halted(site: Site) -> None:
    """Start a node; a fatal fault ends the wait, as it would end the process."""
    loop = asyncio.get_running_loop()
    halted: asyncio.Future[None] = loop.create_future()

    def on_fatal(error: BaseException) -> None:
        if not halted.done():
            halted.set_exception(StartError(str(error)))

    config = site.config()
    node = Node(config, make_world(config, on_fatal))
    start = asyncio.ensure_future(node.start())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.wait([start, halted], return_when=asyncio.FIRST_COMPLETED)
        if halted.done():
            start.cancel()
            halted.result()
        await start
    finally:
        await asyncio.wait([start])
        await node.stop()
