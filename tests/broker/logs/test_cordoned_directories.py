"""A cordoned log directory gets no new logs, and keeps those that it has (KIP-1066)."""

import pytest

from pykraft.broker.apis.cluster import describe_log_dirs
from pykraft.broker.logs.log_dirs import LogDirs, check_cordoned
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.cluster import DescribeLogDirsRequest
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.persistent import Map
from pykraft.metadata_log.records import ConfigResourceType
from tests.broker.answers import as_read
from tests.broker.data_cluster import DataBroker, DataCluster, running_cluster
from tests.broker.logs.test_log_moves import DIRS, alter, begin, is_moved
from tests.waits import until

pytestmark = pytest.mark.world(brokers=())

FIRST, SECOND = DIRS


def cordon(cluster: DataCluster, entries: str | None) -> None:
    configs = {} if entries is None else {"cordoned.log.dirs": entries}
    cluster.controller.set_configs(int(ConfigResourceType.BROKER), "1", configs)


async def cordoned_dirs(broker: DataBroker) -> list[str]:
    request = DescribeLogDirsRequest(topics=None)
    response = as_read(await describe_log_dirs.handle(broker.services, RequestContext(), request, 5), 5)
    return [result.log_dir for result in response.results if result.is_cordoned]


async def dirs_of_new_logs(cluster: DataCluster, broker: DataBroker, count: int = 4) -> set[str]:
    names = [f"n{len(broker.logs.logs) + number}" for number in range(count)]
    for name in names:
        await cluster.create(1, topic=name)
    return {broker.logs.logs[name, 0].log_dir for name in names}


async def test_new_logs_are_created_where_no_cordon_is(cluster: DataCluster) -> None:
    broker = await cluster.start(1, log_dirs=DIRS)
    cluster.controller._change(features=Map({"metadata.version": 30}))
    for entries, expected, listed in (
        (FIRST, {SECOND}, [FIRST]),
        (SECOND, {FIRST}, [SECOND]),
        ("*", {FIRST, SECOND}, [FIRST, SECOND]),  # the controller has not known it yet
        (f"/gone,{SECOND}", {FIRST}, [SECOND]),
        (None, {FIRST, SECOND}, []),
    ):
        cordon(cluster, entries)
        assert await dirs_of_new_logs(cluster, broker, 12 if entries is None else 4) == expected
        assert await cordoned_dirs(broker) == listed


async def test_the_properties_file_counts_until_the_property_is_set(cluster: DataCluster) -> None:
    broker = await cluster.start(1, log_dirs=DIRS, cordoned_log_dirs=(FIRST,))
    assert await dirs_of_new_logs(cluster, broker) == {SECOND}
    cordon(cluster, SECOND)
    assert await dirs_of_new_logs(cluster, broker) == {FIRST}
    cordon(cluster, None)
    assert await dirs_of_new_logs(cluster, broker) == {SECOND}


async def test_directories_that_are_not_here_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with running_cluster(()) as cluster:
        await cluster.start(1, log_dirs=DIRS)
        for entries in ("/gone", "/gone", FIRST):
            cordon(cluster, entries)
    logged = [record.getMessage() for record in caplog.records if "cordoned" in record.getMessage()]
    assert logged == ["cordoned.log.dirs: /gone is not a directory of log.dirs: it is ignored"]


async def test_replicas_move_out_of_a_cordoned_directory_and_not_into_it(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    cordon(cluster, SECOND)
    assert await alter(broker, SECOND) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await alter(broker, SECOND, "none") is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not broker.logs.wanted_dirs
    cordon(cluster, FIRST)
    assert await alter(broker, FIRST) is ErrorCode.NONE, "it is there"
    assert await alter(broker, SECOND) is ErrorCode.NONE
    await until(lambda: is_moved(cluster, broker))


def test_a_change_of_the_cordon_is_told_once() -> None:
    dirs, told = LogDirs(("/a", "/b")), []
    dirs.on_cordoned = lambda: told.append(dirs.cordoned)
    for entries in (["/a"], ["/a"], ["/a", "/x"], ["*"], []):
        dirs.cordon(entries)
    assert told == [{"/a"}, {"/a", "/b"}, set()]


@pytest.mark.parametrize(
    ("entries", "said"),
    [((), None), (("/a",), None), (("*",), None), (("*", "/a"), "only entry"), (("/a", "/x"), "/x is not")],
)
def test_only_own_directories_can_be_cordoned(entries: tuple[str, ...], said: str | None) -> None:
    objection = check_cordoned(entries, ("/a", "/b"))
    assert objection is None if said is None else objection is not None and said in objection
