"""Formatting directories, and what a start accepts."""

import itertools

import pytest

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.bootstrap import read_bootstrap_checkpoint
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.node.format import (
    FormattedDirectory,
    check_directories,
    format_directories,
    parse_initial_controllers,
)
from pykraft.quorum.bootstrap import read_bootstrap_voters
from pykraft.quorum.core.voters import VoterSet
from pykraft.quorum.flushed_mark import FlushedMark, FlushedMarkFile
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore
from pykraft.quorum.storage import QuorumStorage
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.simulated.memory_disk import MemoryDisk

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


def _config(
    node_id: int = 1, log_dirs: str = "/a,/b", voters: str = "", metadata_log_dir: str = ""
) -> ServerConfig:
    return load_server_config(
        f"process.roles=broker,controller\nnode.id={node_id}\nlog.dirs={log_dirs}\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://localhost:9093\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters={voters}\n"
        + (f"metadata.log.dir={metadata_log_dir}\n" if metadata_log_dir else "")
    )


def _format(
    disk: MemoryDisk,
    config: ServerConfig,
    cluster_id: str = CLUSTER,
    *,
    initial_voters: VoterSet | None = None,
    standalone: bool = False,
    ignore_formatted: bool = False,
) -> list[FormattedDirectory]:
    ids = itertools.count(1)
    return format_directories(
        disk,
        config,
        cluster_id,
        BOOTSTRAP_FEATURES,
        lambda: Uuid(next(ids).to_bytes(16, "big") + b""),
        0,
        initial_voters=initial_voters,
        standalone=standalone,
        ignore_formatted=ignore_formatted,
    )


def test_a_formatted_node_knows_its_cluster_its_directories_and_the_first_features() -> None:
    disk = MemoryDisk()
    config = _config(voters="1@localhost:9093")
    done = _format(disk, config)
    identity = check_directories(disk, config)
    assert identity.cluster_id == CLUSTER
    assert identity.directory_ids == {item.path: item.directory_id for item in done}
    assert len(set(identity.directory_ids.values())) == 2
    assert read_bootstrap_checkpoint(disk, "/a") == BOOTSTRAP_FEATURES
    assert read_bootstrap_voters(disk, "/a/__cluster_metadata-0") is None


def test_standalone_makes_this_directory_the_only_voter() -> None:
    disk = MemoryDisk()
    _format(disk, _config(), standalone=True)
    voters = read_bootstrap_voters(disk, "/a/__cluster_metadata-0")
    assert voters is not None
    (voter,) = voters
    assert voter.key.id == 1
    assert voter.key.directory_id == check_directories(disk, _config()).directory_ids["/a"]
    assert str(voter.address) == "localhost:9093"


def test_initial_controllers_give_the_voter_its_directory_id() -> None:
    disk = MemoryDisk()
    directory = uuid_to_str(Uuid(b"d" * 16))
    voters = parse_initial_controllers(
        f"1@localhost:9093:{directory},2@[::1]:9093:{uuid_to_str(Uuid(b'e' * 16))}"
    )
    _format(disk, _config(), initial_voters=voters)
    assert check_directories(disk, _config()).directory_ids["/a"] == b"d" * 16
    assert read_bootstrap_voters(disk, "/a/__cluster_metadata-0") == voters


@pytest.mark.parametrize("text", ["1@h:1", "1@h:1:short", "h:1:" + "A" * 22, f"1@:1:{'A' * 22}"])
def test_a_malformed_initial_controller_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--initial-controllers"):
        parse_initial_controllers(text)


def test_an_unformatted_directory_is_refused_with_the_command_to_run() -> None:
    with pytest.raises(ConfigError, match="pykraft storage format"):
        check_directories(MemoryDisk(), _config())


def test_a_directory_of_another_node_or_cluster_is_refused() -> None:
    disk = MemoryDisk()
    _format(disk, _config(node_id=2, voters="2@localhost:9093"))
    with pytest.raises(ConfigError, match=r"belongs to node 2, but node\.id is 1"):
        check_directories(disk, _config())
    disk = MemoryDisk()
    _format(disk, _config(log_dirs="/a"), standalone=True)
    _format(disk, _config(log_dirs="/b"), "other-cluster", standalone=True)
    disk.remove_tree("/b/__cluster_metadata-0")
    with pytest.raises(ConfigError, match="/b belongs to cluster other-cluster"):
        check_directories(disk, _config(log_dirs="/a,/b"))


def test_a_copied_directory_is_refused() -> None:
    disk = MemoryDisk()
    _format(disk, _config(log_dirs="/a,/c"), standalone=True)
    disk.make_dirs("/d")
    disk.write_atomic("/d/meta.properties", disk.read("/c/meta.properties"))
    with pytest.raises(ConfigError, match=r"/d has the directory id .* of another directory"):
        check_directories(disk, _config(log_dirs="/a,/c,/d"))


def test_a_directory_that_cannot_be_used_leaves_the_others() -> None:
    disk = MemoryDisk()
    _format(disk, _config(log_dirs="/a,/c"), standalone=True)
    disk.write_atomic("/e", b"a file")
    config = _config(log_dirs="/a,/c,/e,/f")
    identity = check_directories(disk, config, {"/f": "it is locked"})
    assert identity.directory_ids.keys() == {"/a", "/c"}
    assert sorted(identity.offline) == ["/e", "/f"]
    assert identity.offline["/f"] == "it is locked"
    with pytest.raises(ConfigError, match=r"no log directory can be used: /e: it is not a"):
        check_directories(disk, _config(log_dirs="/e", metadata_log_dir="/a"))
    with pytest.raises(ConfigError, match="/g is not formatted"):
        check_directories(disk, _config(log_dirs="/a,/g"))


def test_a_controller_whose_metadata_log_is_lost_does_not_start_as_a_new_one() -> None:
    disk = MemoryDisk()
    config = _config(voters="1@localhost:9093")
    _format(disk, config)
    for name in disk.list("/a/__cluster_metadata-0"):
        disk.remove(f"/a/__cluster_metadata-0/{name}")
    with pytest.raises(ConfigError, match="its metadata log is lost: /a/__cluster_metadata-0 is missing"):
        check_directories(disk, config)
    disk.remove_tree("/a/__cluster_metadata-0")
    with pytest.raises(ConfigError, match="its metadata log is lost: /a/__cluster_metadata-0 is missing"):
        check_directories(disk, config)


def test_a_lost_metadata_log_is_formatted_again_next_to_the_partitions() -> None:
    """As the error messages say. A log that a refused start created must be deleted, too: it gets no mark."""
    disk = MemoryDisk()
    config = _config(log_dirs="/a", voters="1@localhost:9093")
    _format(disk, config)
    disk.make_dirs("/a/t-0")
    disk.write_atomic(f"/a/t-0/{0:020}.log", b"records")
    directory = "/a/__cluster_metadata-0"
    disk.remove(f"{directory}/flushed-offset")
    log = Log.open(disk, directory, LogConfig(), now_ms=0)
    storage = QuorumStorage(log, QuorumStateStore(disk, directory), SystemClock())
    with pytest.raises(QuorumStateError, match=r"remove it and the meta\.properties beside it, format with"):
        storage.recover()
    disk.remove_tree(directory)
    with pytest.raises(ConfigError, match=r"remove it and the meta\.properties beside it"):
        check_directories(disk, config)
    disk.remove("/a/meta.properties")
    _format(disk, config, ignore_formatted=True)
    check_directories(disk, config)
    assert FlushedMarkFile(disk, directory).read() == FlushedMark(0)
    assert disk.read(f"/a/t-0/{0:020}.log") == b"records"


def test_a_broker_whose_metadata_log_is_lost_starts() -> None:
    """It does not vote, and fetches the log again."""
    disk = MemoryDisk()
    config = load_server_config(
        "process.roles=broker\nnode.id=1\nlog.dirs=/a\nlisteners=PLAINTEXT://:9092\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=2@localhost:9093\n"
    )
    _format(disk, config)
    disk.remove_tree("/a/__cluster_metadata-0")
    check_directories(disk, config)


def test_formatting_leaves_an_existing_log_unchanged() -> None:
    """Only meta.properties is lost: a mark with end 0 would cause the log to be truncated."""
    disk = MemoryDisk()
    config = _config(log_dirs="/a", voters="1@localhost:9093")
    _format(disk, config)
    directory = "/a/__cluster_metadata-0"
    FlushedMarkFile(disk, directory).write(FlushedMark(7, 2))
    disk.remove("/a/meta.properties")
    _format(disk, config)
    assert FlushedMarkFile(disk, directory).read() == FlushedMark(7, 2)
    disk.remove(f"{directory}/flushed-offset")  # an earlier version wrote none
    disk.write_atomic(f"{directory}/{0:020}.log", b"records")
    disk.remove("/a/meta.properties")
    _format(disk, config)
    assert FlushedMarkFile(disk, directory).read() is None


def test_formatting_that_a_crash_interrupted_is_repeated_completely() -> None:
    disk = MemoryDisk()
    config = _config(log_dirs="/a", voters="1@localhost:9093")
    disk.make_dirs("/a/__cluster_metadata-0")
    disk.open("/a/__cluster_metadata-0/flushed-offset.tmp").append(b"half")
    _format(disk, config)
    assert FlushedMarkFile(disk, "/a/__cluster_metadata-0").read() == FlushedMark(0)


def test_formatting_twice_needs_ignore_formatted_and_changes_nothing() -> None:
    disk = MemoryDisk()
    config = _config(log_dirs="/a", voters="1@localhost:9093")
    before = _format(disk, config)
    with pytest.raises(ConfigError, match="--ignore-formatted"):
        _format(disk, config)
    both = _config(voters="1@localhost:9093")
    after = _format(disk, both, ignore_formatted=True)
    assert [item.skipped for item in after] == [True, False]
    assert check_directories(disk, both).directory_ids["/a"] == before[0].directory_id
    with pytest.raises(ConfigError, match="belongs to cluster"):
        _format(disk, both, "another", ignore_formatted=True)
