"""The blocking producer on real sockets: order, threads, errors, and what ends it."""

import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import AbortableError, NotWrittenError
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.batch import ProducerConfig, RecordMetadata
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.producer.transaction import TransactionConfig
from pykraft.runtime.address import Address
from tests.mock_cluster import MockCluster

NOBODY = ClientConfig((Address("127.0.0.1", 1),))
WAIT_S = 30


def client_of(cluster: MockCluster) -> ClientConfig:
    return ClientConfig(parse_bootstrap_servers(cluster.bootstrap_servers))


def test_records_of_a_thread_keep_their_order(mock_cluster: MockCluster) -> None:
    mock_cluster.producer.list_topics("blocking-order", 10)
    sent: dict[int, list[Future[RecordMetadata]]] = {}
    with BlockingProducer(client_of(mock_cluster), ProducerConfig(linger_ms=1)) as producer:

        def write(partition: int) -> None:
            sent[partition] = [
                producer.send("blocking-order", partition, None, b"%d" % n) for n in range(200)
            ]

        threads = [threading.Thread(target=write, args=(partition,)) for partition in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.flush(WAIT_S * 1_000)
        for futures in sent.values():
            assert [future.result(WAIT_S).offset for future in futures] == list(range(200))


def test_the_end_of_the_block_writes_what_was_sent(mock_cluster: MockCluster) -> None:
    mock_cluster.producer.list_topics("blocking-close", 10)
    with BlockingProducer(client_of(mock_cluster), ProducerConfig(linger_ms=60_000)) as producer:
        future = producer.send("blocking-close", None, b"key", b"v")
    assert future.result(0).offset == 0
    for call in (producer.flush, lambda: producer.send("blocking-close", 0, None, b"v")):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    producer.close()


def test_a_full_buffer_blocks_until_there_is_room(mock_cluster: MockCluster) -> None:
    mock_cluster.producer.list_topics("blocking-full", 10)
    config = ProducerConfig(linger_ms=0, buffer_memory_bytes=2_000)
    with BlockingProducer(client_of(mock_cluster), config) as producer:
        futures = [producer.send("blocking-full", 0, None, b"x" * 500) for _ in range(50)]
        assert [future.result(WAIT_S).offset for future in futures] == list(range(50))


def test_a_buffer_that_stays_full_refuses_after_max_block_ms() -> None:
    config = ProducerConfig(buffer_memory_bytes=700, max_block_ms=50)
    producer = BlockingProducer(NOBODY, config)
    lost = producer.send("t", 0, None, b"x" * 500)
    with pytest.raises(NotWrittenError, match="buffer"):
        producer.send("t", 0, None, b"x" * 500)
    with pytest.raises(NotWrittenError, match=r"max\.block\.ms"):
        producer.send("t", None, None, b"x")
    assert not producer.flush(10)
    producer.close(0)
    with pytest.raises(NotWrittenError):
        lost.result(WAIT_S)


def test_a_record_that_is_refused_fails_its_transaction(mock_cluster: MockCluster) -> None:
    """Nobody looks at the futures here, and the commit must not leave the record out."""
    mock_cluster.producer.list_topics("blocking-transaction", 10)
    config = ProducerConfig(max_request_size_bytes=1_000)
    with BlockingProducer(client_of(mock_cluster), config, TransactionConfig("blocking")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("blocking-transaction", 0, None, b"v")
        producer.send("blocking-transaction", 0, None, b"x" * 2_000)
        with pytest.raises(AbortableError, match=r"max\.request\.size"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        sent = producer.send("blocking-transaction", 0, None, b"v")
        producer.commit_transaction()
        assert sent.done()


def test_calls_that_do_not_fit_are_refused() -> None:
    plain = BlockingProducer(NOBODY)
    with pytest.raises(RuntimeError, match="transactional"):
        plain.begin_transaction()
    plain.close()
    producer = BlockingProducer(NOBODY, None, TransactionConfig("x"))
    with pytest.raises(RuntimeError, match="init_transactions"):
        producer.begin_transaction()
    with pytest.raises(RuntimeError, match="init_transactions"):
        producer.send("t", 0, None, b"v").result(WAIT_S)
    with pytest.raises(TypeError, match="create it in the process"):
        pickle.dumps(producer)
    producer.close()


def test_a_callback_may_send_and_must_not_wait(mock_cluster: MockCluster) -> None:
    mock_cluster.producer.list_topics("blocking-callback", 10)
    seen: Future[tuple[Future[RecordMetadata], BaseException]] = Future()
    with BlockingProducer(client_of(mock_cluster)) as producer:

        def then(_: object) -> None:
            second = producer.send("blocking-callback", 0, None, b"2")
            try:
                producer.flush()
            except RuntimeError as error:
                seen.set_result((second, error))

        producer.send("blocking-callback", 0, None, b"1").add_done_callback(then)
        second, error = seen.result(WAIT_S)
        assert second.result(WAIT_S).offset == 1
        assert "must not wait" in str(error)


def test_a_fork_is_told_to_make_its_own(mock_cluster: MockCluster) -> None:
    mock_cluster.producer.list_topics("blocking-fork", 10)
    program = """
import os, sys
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.runtime.address import parse_address
producer = BlockingProducer(ClientConfig((parse_address(sys.argv[1]),)))
producer.send("blocking-fork", 0, None, b"1").result(30)
child = os.fork()
if not child:
    try:
        producer.send("blocking-fork", 0, None, b"2")
    except RuntimeError as error:
        producer.close()
        os._exit(7 if "fork" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print(producer.send("blocking-fork", 0, None, b"2").result(30).offset)
producer.close()
"""
    assert run_program(program, mock_cluster.bootstrap_servers.split(",")[0]).stdout == "1\n"


def test_nothing_is_queued_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = BlockingProducer(NOBODY)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        with pytest.raises(RuntimeError, match="does not survive a fork"):
            producer.send("t", 0, None, b"1")
    assert not producer._sends
    producer.close(0)


def test_a_program_that_does_not_close_its_producer_ends() -> None:
    program = """
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.runtime.address import Address
producer = BlockingProducer(ClientConfig((Address("127.0.0.1", 1),)))
producer.send("t", 0, None, b"1")
print("end")
"""
    assert run_program(program).stdout == "end\n"


def test_an_interrupt_ends_a_wait_and_then_close_ends_the_producer() -> None:
    program = """
import os, signal, threading
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.runtime.address import Address
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in the background
producer = BlockingProducer(ClientConfig((Address("127.0.0.1", 1),)), ProducerConfig())
future = producer.send("t", 0, None, b"1")
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    producer.flush()
except KeyboardInterrupt:
    producer.close(0)
    print("interrupted", future.done())
"""
    assert run_program(program).stdout == "interrupted True\n"


def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(sys.modules["pykraft"].__file__ or "").parent.parent)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done
