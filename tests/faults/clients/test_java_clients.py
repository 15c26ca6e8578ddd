"""What the answers of the JVM mean to a workload; ``tests/interop`` has a real one."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from pykraft.jepsen_like.faults.clients import java_process
from pykraft.jepsen_like.faults.clients.interface import (
    Polled,
    PositionLostError,
    ProducerConfig,
    RefusedError,
    UnknownOutcomeError,
)
from pykraft.jepsen_like.faults.clients.java import MOST_UNANSWERED, JavaProducer, JavaReader
from pykraft.jepsen_like.faults.clients.java_process import (
    Answer,
    JavaEndedError,
    JavaProcess,
    decoded,
    encoded,
)
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.testing.processes.kafka_jars import NoKafkaError
from tests.asynchronous import in_loop

PLACE = TopicPartition("a topic", 1)


class Java:
    """In the place of the JVM: what it was told, and questions that a test answers in their order."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.questions: list[asyncio.Future[Answer]] = []

    def tell(self, *command: object) -> None:
        self.told.append(command)

    def ask(self, *command: object) -> asyncio.Future[Answer]:
        self.told.append(command)
        self.questions.append(asyncio.get_running_loop().create_future())
        return self.questions[-1]

    def answer(self, *fields: str) -> None:
        self.questions.pop(0).set_result(list(fields))


@asynccontextmanager
async def begun() -> AsyncIterator[Java]:
    yield Java()


java = in_loop(begun)


def producer(java: Java, **config: Any) -> JavaProducer:
    return JavaProducer(cast(JavaProcess, java), 1, ProducerConfig("p 0", **config))


def reader(java: Java) -> JavaReader:
    return JavaReader(cast(JavaProcess, java), 2, "r", {PLACE: 5}, committed=True)


@pytest.mark.parametrize("text", ["", "plain", "a b+c%20!", "é\n\t\x00", "!", None])
def test_any_text_is_one_field_and_comes_back(text: str | None) -> None:
    assert " " not in encoded(text) and encoded(text).isascii()
    assert decoded(encoded(text)) == text


async def test_send_has_the_outcome_of_its_answer(java: Java) -> None:
    sender = producer(java)
    assert java.told == [("producer", 1, "p%200", -1, "true", 1)]
    answers = [sender.send(PLACE, value, 7, "k") for value in ("v w", None, "x", "y")]
    assert java.told[1:3] == [
        ("send", 1, "a%20topic", 1, 7, "k", "v%20w"),
        ("send", 1, "a%20topic", 1, 7, "k", "!"),
    ]
    java.answer("ok", "12")
    java.answer("ok", "!")
    java.answer("refused", "TooLarge%3A+no")
    java.answer("unknown", "Timeout")
    found = await asyncio.gather(*filter(None, answers), return_exceptions=True)
    assert found[:2] == [12, None]
    assert isinstance(found[2], RefusedError) and str(found[2]) == "TooLarge: no"
    assert isinstance(found[3], UnknownOutcomeError)
    assert sender.fatal is None


async def test_queue_is_full_until_something_is_answered(java: Java) -> None:
    sender = producer(java)
    for _ in range(MOST_UNANSWERED):
        assert sender.send(PLACE, "v", 7) is not None
    assert sender.send(PLACE, "v", 7) is None
    java.answer("ok", "0")
    await asyncio.sleep(0)
    assert sender.send(PLACE, "v", 7) is not None


@pytest.mark.parametrize(("max_in_flight", "is_fatal"), [(1, True), (5, False)])
async def test_lost_sequence_is_fatal_where_nothing_else_was_in_flight(
    java: Java, max_in_flight: int, is_fatal: bool
) -> None:
    sender = producer(java, max_in_flight=max_in_flight)
    answer = sender.send(PLACE, "v", 7)
    assert answer is not None
    java.answer("unknown", "OutOfOrderSequenceException%3A+gap")
    with pytest.raises(UnknownOutcomeError):
        await answer
    assert (sender.fatal is not None) is is_fatal


async def test_poll_returns_records_by_partition(java: Java) -> None:
    polling = asyncio.ensure_future(reader(java).poll(0.25))
    await asyncio.sleep(0)
    assert java.told == [("reader", 2, "r", "true", "a%20topic", 1, 5), ("poll", 2, 250)]
    java.answer("ok", *"a+topic 1 3 5 ! v+w 6 k x 8 k !".split(), *"t 0 1 0 ! v".split())
    assert await polling == {
        PLACE: Polled(((5, "v w"), (6, "k=x"), (8, "k"))),
        TopicPartition("t", 0): Polled(((0, "v"),)),
    }


async def test_refused_position_names_its_partition(java: Java) -> None:
    polling = asyncio.ensure_future(reader(java).poll(0.2))
    await asyncio.sleep(0)
    java.answer("lost", "a+topic", "1", "5", "OffsetOutOfRangeException")
    with pytest.raises(PositionLostError) as lost:
        await polling
    assert (lost.value.partition, lost.value.offset) == (PLACE, 5)


async def test_offset_that_is_not_told_is_unknown(java: Java) -> None:
    looking = asyncio.ensure_future(reader(java).end_offset(PLACE))
    await asyncio.sleep(0)
    assert java.told[-1] == ("end", 2, "a%20topic", 1)
    java.answer("unknown", "TimeoutException")
    with pytest.raises(UnknownOutcomeError):
        await looking


ECHO = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    number, what, *rest = line.split()
    if what == "die":
        break
    print(number, "ok", what, *rest, flush=True)
"""


def start(monkeypatch: pytest.MonkeyPatch, program: str) -> JavaProcess:
    """A program of Python's in the place of the JVM."""
    monkeypatch.setattr(java_process, "java", lambda *_: [sys.executable, "-c", program])
    return JavaProcess("127.0.0.1:1", Path())


async def test_answers_find_their_questions_and_the_process_ends_with_its_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    java = start(monkeypatch, ECHO)
    assert list(await asyncio.gather(java.ask("a", 1), java.ask("b", 2, "x", 3))) == [
        ["ok", "a", "1"],
        ["ok", "b", "2", "x", "3"],
    ]
    java.close()


async def test_questions_to_a_process_that_has_ended_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    java = start(monkeypatch, ECHO)
    for what in ("die", "again"):
        with pytest.raises(JavaEndedError):
            await java.ask(what, 1)
    java.close()


def test_process_that_does_not_start_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoKafkaError, match=r"ended with status 3 \(a JDK is needed"):
        start(monkeypatch, "raise SystemExit(3)")
