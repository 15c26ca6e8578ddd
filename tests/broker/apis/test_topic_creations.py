"""Auto-created topics: nobody waits for them, and they are asked for once."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from pykraft.broker.apis.cluster import metadata
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.topic_creation import MOST_BEGUN, TopicCreations
from pykraft.broker.config import BrokerConfig
from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.broker.metadata.cache import MetadataCache
from pykraft.coordinator.partitioning import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from pykraft.kafka_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.runtime.tasks import TaskSupervisor
from tests.broker.answers import as_read

CALLER = RequestContext(principal="p", listener="l", client_id="c", client_address="a")
UNKNOWN, INVALID = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
CONFIG = BrokerConfig(
    node_id=1,
    cluster_id="c",
    log_dirs=(),
    listeners=(),
    offsets_topic_num_partitions=7,
    transaction_log_num_partitions=5,
)


class Controller:
    """Answers every request for topics with ``codes``, but not before it is told to."""

    def __init__(self, **codes: ErrorCode) -> None:
        self.codes = codes
        self.failure: KafkaError | None = None
        self.asked: list[CreatableTopic] = []
        self.versions: list[int] = []
        self.callers: list[RequestContext] = []
        self.may_answer = asyncio.Event()

    async def forward(
        self, context: RequestContext, key: int, version: int, body: bytes, timeout_ms: int
    ) -> bytes:
        topics = CreateTopicsRequest.decode(body, version).topics
        self.asked += topics
        self.versions.append(version)
        self.callers.append(context)
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        results = [
            CreatableTopicResult(name=one.name, error_code=self.codes.get(one.name, ErrorCode.NONE))
            for one in topics
        ]
        return CreateTopicsResponse(topics=results).encode(version)

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.asked]


class Broker:
    def __init__(self, controller: Controller, *, auto_create: bool = True) -> None:
        self.controller = controller
        self.fatal: list[BaseException] = []
        self.tasks = TaskSupervisor(self.fatal.append)
        self.creations = TopicCreations(CONFIG, cast(ControllerChannel, controller), self.tasks)
        self._services = SimpleNamespace(
            metadata=MetadataCache(1, "cluster", EMPTY_IMAGE),
            config=SimpleNamespace(auto_create_topics_enable=auto_create),
            creations=self.creations,
        )

    async def ask(
        self, names: Sequence[str], version: int = 12, *, allow: bool = True
    ) -> list[MetadataResponseTopic]:
        """The topics of a Metadata answer."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=allow
        )
        services = cast(BrokerServices, self._services)
        return as_read(metadata.handle(services, CALLER, request, version), version).topics

    async def finish(self) -> None:
        """The controller answers."""
        self.controller.may_answer.set()
        while len(self.tasks):
            await asyncio.sleep(0)
        assert not self.fatal


@pytest.mark.parametrize("version", range(14))
async def test_client_is_told_that_a_topic_is_missing_while_it_is_created(version: int) -> None:
    broker = Broker(Controller())
    (topic,) = await broker.ask(["new"], version)
    assert (topic.error_code, topic.name, topic.partitions) == (UNKNOWN, "new", [])
    await asyncio.sleep(0)
    (created,) = broker.controller.asked
    assert (created.name, created.num_partitions, created.replication_factor) == ("new", -1, -1)
    assert broker.controller.callers == [CALLER]
    await broker.finish()


@pytest.mark.parametrize(
    ("auto_create", "allow", "version", "created"),
    [
        (True, True, 4, True),
        (True, False, 4, False),
        (True, False, 3, True),  # has no word for it
        (False, True, 4, False),
        (False, True, 3, False),
    ],
)
async def test_topics_are_created_only_where_broker_and_client_allow_it(
    auto_create: bool, allow: bool, version: int, created: bool
) -> None:
    broker = Broker(Controller(), auto_create=auto_create)
    (topic,) = await broker.ask(["new"], version, allow=allow)
    assert topic.error_code == UNKNOWN
    await broker.finish()
    assert broker.controller.names == ["new"] * created


@pytest.mark.parametrize("allow", [True, False])
async def test_name_that_no_topic_can_have_is_refused_and_not_created(allow: bool) -> None:
    broker = Broker(Controller())
    names = ["", ".", "..", "a b", "x" * 250, "x" * 249]
    topics = await broker.ask(names, allow=allow)
    assert [topic.error_code for topic in topics] == [INVALID] * 5 + [UNKNOWN]
    await broker.finish()
    assert broker.controller.names == ["x" * 249] * allow


async def test_internal_topics_are_created_as_their_coordinators_need_them() -> None:
    broker = Broker(Controller())
    topics = await broker.ask(["__consumer_offsets", "__transaction_state", "mine"])
    assert [topic.is_internal for topic in topics] == [True, True, False]
    await broker.finish()
    offsets, transactions, mine = broker.controller.asked
    assert (offsets.num_partitions, transactions.num_partitions, mine.num_partitions) == (7, 5, -1)
    for topic in (offsets, transactions):
        assert {one.name: one.value for one in topic.configs}["cleanup.policy"] == "compact"
    assert not mine.configs


async def test_topic_that_is_being_created_is_not_asked_for_again() -> None:
    broker = Broker(Controller())
    await broker.ask(["a", "b", "a"])
    await broker.ask(["b", "c"])
    await asyncio.sleep(0)
    assert broker.controller.names == ["a", "b", "c"]
    await broker.finish()
    await broker.ask(["a"])
    await broker.finish()
    assert broker.controller.names == ["a", "b", "c", "a"]


async def test_number_of_topics_that_are_being_created_is_bounded() -> None:
    broker = Broker(Controller())
    names = [f"t{number}" for number in range(MOST_BEGUN + 10)]
    assert {topic.error_code for topic in await broker.ask(names)} == {UNKNOWN}
    await broker.ask(["another"])
    await asyncio.sleep(0)
    assert broker.controller.names == names[:MOST_BEGUN]
    await broker.finish()
    await broker.ask(names[MOST_BEGUN:])
    await broker.finish()
    assert broker.controller.names == names


async def test_refused_creation_is_logged_and_may_be_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        broker = Broker(
            Controller(bad=ErrorCode.INVALID_REPLICATION_FACTOR, there=ErrorCode.TOPIC_ALREADY_EXISTS)
        )
        for _ in range(2):
            await broker.ask(["bad", "there"])
            await broker.finish()
        assert broker.controller.names == ["bad", "there"] * 2
        broker.controller.failure = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody leads")
        for _ in range(2):
            await broker.ask(["bad", "there"])
            await broker.finish()
        assert broker.controller.names == ["bad", "there"] * 4
    assert caplog.text.count("INVALID_REPLICATION_FACTOR") == 2
    assert "TOPIC_ALREADY_EXISTS" not in caplog.text
    assert caplog.text.count("nobody leads") == 2


async def test_request_whose_topics_are_all_refused_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        names = [f"t{number}" for number in range(MOST_BEGUN)]
        broker = Broker(Controller(**dict.fromkeys(names, ErrorCode.POLICY_VIOLATION)))
        await broker.ask(names)
        await broker.finish()
        assert broker.controller.names == names
        assert broker.controller.versions == [4], "later answers list the settings of each topic"
    (record,) = caplog.records
    assert record.getMessage() == "1000 topics not auto-created, the first is t0: POLICY_VIOLATION: t0"


class _Counted(dict[str, None]):
    """Names that are counted when somebody looks at them."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            self.looks += 1
            yield name


async def test_no_more_names_are_looked_at_than_there_is_room_for() -> None:
    broker = Broker(Controller())
    names = _Counted((f"t{number}", None) for number in range(100_000))
    names[OFFSETS_TOPIC] = None
    for _ in range(2):
        names.looks = 0
        broker.creations.begin(CALLER, names)
        assert names.looks <= MOST_BEGUN
    await broker.finish()
    assert len(broker.controller.names) == MOST_BEGUN
    assert OFFSETS_TOPIC in broker.controller.names


async def test_reason_of_a_refusal_is_known_until_the_next_attempt_succeeds() -> None:
    broker = Broker(Controller(**{OFFSETS_TOPIC: ErrorCode.INVALID_REPLICATION_FACTOR}))
    for failure in (None, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody leads")):
        broker.controller.failure = failure
        broker.creations.begin(CALLER, [OFFSETS_TOPIC, "bad"])
        await broker.finish()
        expected = OFFSETS_TOPIC if failure is None else "nobody leads"
        assert broker.creations.refusal(OFFSETS_TOPIC) == expected
        assert broker.creations.refusal("bad") is None, "for internal topics, of which there are few"
    broker.controller.codes, broker.controller.failure = {}, None
    broker.creations.begin(CALLER, [OFFSETS_TOPIC])
    await broker.finish()
    assert broker.creations.refusal(OFFSETS_TOPIC) is None


async def test_internal_topics_are_created_however_many_others_are() -> None:
    broker = Broker(Controller())
    broker.creations.begin(CALLER, [f"t{number}" for number in range(MOST_BEGUN)])
    broker.creations.begin(CALLER, ["one-more", OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC])
    broker.creations.begin(CALLER, [OFFSETS_TOPIC])
    await broker.finish()
    assert broker.controller.names[MOST_BEGUN:] == [OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC]
