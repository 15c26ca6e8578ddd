"""Random requests of several clients against a model, with everything that may get in between.

Clients go on, recover, give up; zombies send at old epochs, strangers guess; each request may be sent again
at any later time. Markers are written late and twice, transactions time out, ids expire, the coordinator
fails over (all that it has is what its records say), the feature is raised and lowered. Epochs begin close to
the last one, so that producer ids are used up. After each step answer and state are those of the model, and
what must hold whatever the model says is checked here:

- each change of state is in Kafka's table, and the epoch of a producer id never goes back;
- no two sessions get the same producer id and epoch. A session begins with an InitProducerId that names no
  producer, and goes on with whatever names one of its own;
- the log of all records replays to the live state, but for the epoch before the last, and in version 0
  the producer id before;
- a request that is refused changes nothing;
- a transaction that was committed is never aborted, nor the other way round, and no two answers to one
  producer id and epoch say different things about how its transaction ended.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pykraft.transaction_coordinator.log.codec import decode_record
from pykraft.transaction_coordinator.transaction import (
    Transaction,
    TransactionState,
    TransactionVersion,
)
from tests.transaction_coordinator.model import CONCURRENT_TRANSACTIONS, NONE, Model, Producer, Row, code_of
from tests.transaction_coordinator.shards import NO_PRODUCER, T0, T1, Shard, a_transaction
from tests.transaction_coordinator.test_transitions import KAFKAS_PREDECESSORS

NAMES = ("a", "b")
CLIENTS = ("a1", "a2", "b1", "b2", "b3")
"""The first letter is the transactional id."""

FIRST_EPOCHS = (0, 7, 32763, 32764, 32765, 32766)
LOADED = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
OFFSETS = ("__consumer_offsets", 11)

Request = tuple[str, str, str, Producer, int, object]
"""Kind, client, transactional id, producer (or :data:`NO_PRODUCER`), version, and what is asked for."""

clients = st.sampled_from(CLIENTS)
names = st.sampled_from(NAMES)
partitions = st.sampled_from([frozenset({T0}), frozenset({T1}), frozenset({T0, T1})])


class Coordinator(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard()
        self.model = Model()
        self.beliefs: dict[str, Producer] = {}
        self.sent: list[Request] = []
        self.sessions: dict[Producer, int] = {}
        self.ends: dict[Producer, bool] = {}
        """How the transaction of a producer of TV_2 ended, as answers said."""
        self.checked_records = 0
        self.values: dict[str, Transaction | None] = {}
        self.highest: dict[int, int] = {}
        self.owners: dict[int, str] = {}

    @initialize(
        epochs=st.tuples(*[st.none() | st.sampled_from(FIRST_EPOCHS) for _ in NAMES]),
        state=st.sampled_from(LOADED),
    )
    def load(self, epochs: tuple[int | None, ...], state: TransactionState) -> None:
        """Ids that an earlier coordinator has left."""
        loaded = []
        for number, (name, epoch) in enumerate(zip(NAMES, epochs, strict=True)):
            if epoch is None:
                continue
            own_id = 100 + number
            value = a_transaction(
                state, epoch, transactional_id=name, producer_id=own_id, previous_producer_id=own_id
            )
            loaded.append(value)
            self.model.rows[name] = Row(
                state.label, own_id, epoch, value.timeout_ms, 0, own_id, started_ms=value.start_timestamp_ms
            )
            self.values[name] = value
            self.beliefs[f"{name}1"] = own_id, epoch
            self.sessions[own_id, epoch] = number + 1
        self.shard = Shard(*loaded)
        self.checked_records = len(self.shard.log)

    # --- requests ----------------------------------------------------------------------------------------

    @rule(
        client=clients,
        version=st.sampled_from([1, 3, 4, 5]),
        timeout_ms=st.sampled_from([1_000, 60_000]),
        takes_over=st.sampled_from([False, False, True]),
    )
    def begin(self, client: str, version: int, timeout_ms: int, takes_over: bool) -> None:
        """Most often because nobody is there: takeovers would leave no time for transactions."""
        if takes_over or client[0] not in self.model.rows:
            self.send(("init", client, client[0], NO_PRODUCER, version, timeout_ms))

    @rule(
        name=names,
        version=st.sampled_from([3, 5, 5]),
        commit=st.booleans(),
        then=st.sampled_from(["complete", "retry", "zombie", "fail over", ""]),
    )
    def transact(self, name: str, version: int, commit: bool, then: str) -> None:
        """A whole transaction, by the client that is current, if one is."""
        row = self.model.rows.get(name)
        current = [one for one in CLIENTS if row and self.belief(one) == (row.producer_id, row.epoch)]
        for client in current[:1]:
            assert row is not None
            self.send(("add", client, name, self.belief(client), version, frozenset({T0})))
            self.send(("end", client, name, self.belief(client), version, commit))
            if then in ("complete", "retry", "zombie"):
                self.write_all_markers()
            if then == "retry":
                self.send(self.sent[-1])
            elif then == "zombie":
                producer_id, epoch = row.producer_id, row.epoch
                self.send(("end", f"{name}?", name, (producer_id, max(epoch - 1, 0)), 5, commit))
            elif then == "fail over" and self.shard.prepared:
                self.fail_over()
                self.write_markers(back=2)

    @rule(client=clients, version=st.sampled_from([3, 4, 5]))
    def recover(self, client: str, version: int) -> None:
        self.send(("init", client, client[0], self.belief(client), version, 60_000))

    @rule(client=clients, version=st.sampled_from([0, 1, 2, 3, 4, 5]), added=partitions)
    def add(self, client: str, version: int, added: frozenset[tuple[str, int]]) -> None:
        self.send(("add", client, client[0], self.belief(client), version, added))

    @rule(client=clients, version=st.sampled_from([4, 5]), asked=partitions)
    def verify(self, client: str, version: int, asked: frozenset[tuple[str, int]]) -> None:
        self.send(("verify", client, client[0], self.belief(client), version, asked))

    @rule(client=clients, version=st.sampled_from([1, 3]))
    def add_offsets(self, client: str, version: int) -> None:
        self.send(("offsets", client, client[0], self.belief(client), version, None))

    @rule(client=clients, version=st.sampled_from([1, 3, 5, 5, 5]), commit=st.booleans())
    def end(self, client: str, version: int, commit: bool) -> None:
        self.send(("end", client, client[0], self.belief(client), version, commit))

    @precondition(lambda self: self.sent)
    @rule(back=st.integers(1, 3) | st.integers(1, 30))
    def send_again(self, back: int) -> None:
        self.send(self.sent[-min(back, len(self.sent))])

    @rule(
        name=names,
        kind=st.sampled_from(["init", "add", "end"]),
        version=st.sampled_from([3, 5]),
        by=st.sampled_from([-2, -1, 0, 1]),
        commit=st.booleans(),
        with_old_id=st.booleans(),
    )
    def guess(self, name: str, kind: str, version: int, by: int, commit: bool, with_old_id: bool) -> None:
        """Somebody whose producer was never there, or no longer is."""
        row = self.model.rows.get(name)
        producer = 1, 0
        if row is not None:
            use_old = with_old_id and row.before != -1
            producer = row.before if use_old else row.producer_id, row.epoch + by
        if producer[1] < 0 or producer[1] > 32767:
            producer = producer[0], 32766
        what: object = {"init": 60_000, "add": frozenset({T0}), "end": commit}[kind]
        self.send((kind, f"{name}?", name, producer, version, what))

    @precondition(lambda self: self.with_id_before())
    @rule(
        kind=st.sampled_from(["init", "end"]),
        epoch=st.sampled_from([0, 1, 32765, 32766]),
        pick=st.integers(0, 1),
    )
    def guess_id_before(self, kind: str, epoch: int, pick: int) -> None:
        """The producer id has just changed, and somebody still has the old one."""
        found = self.with_id_before()
        name = found[pick % len(found)]
        self.send(
            (
                kind,
                f"{name}?",
                name,
                (self.model.rows[name].before, epoch),
                5,
                60_000 if kind == "init" else True,
            )
        )

    def with_id_before(self) -> list[str]:
        rows = sorted(self.model.rows.items())
        return [name for name, row in rows if row.before not in (-1, row.producer_id)]

    # --- what happens by itself -----------------------------------------------------------------------------

    @rule(by_ms=st.sampled_from([1, 999, 1_001, 60_001, 604_800_000]))
    def wait(self, by_ms: int) -> None:
        self.shard.now_ms += by_ms
        self.model.now_ms += by_ms

    @precondition(lambda self: self.shard.prepared)
    @rule(back=st.integers(1, 10))
    def write_markers(self, back: int) -> None:
        """Of a transaction that is prepared, or was: a report about it may come at any later time."""
        prepared = self.shard.prepared[-min(back, len(self.shard.prepared))]
        now = self.shard.state.transactions.get(prepared.transactional_id)
        counts = now is not None and (now == prepared or now == replace(prepared, last_producer_epoch=-1))
        result = self.shard.complete(prepared=prepared)
        assert bool(result.records) == counts
        if counts:
            self.model.complete(prepared.transactional_id)

    @rule()
    def write_all_markers(self) -> None:
        for name in sorted(self.shard.state.prepared):
            self.shard.complete(name)
            self.model.complete(name)

    @rule(name=names)
    def time_out(self, name: str) -> None:
        """The walk comes by; or it looks at an id without a reason, which must do nothing."""
        fresh = self.shard.next_producer_id
        assert self.shard.time_out(name) == self.model.time_out(name, fresh)

    @rule()
    def sweep(self) -> None:
        due = sorted(self.shard.state.deadlines_ms)
        aborted = self.shard.abort_timed_out()
        assert aborted == [name for name in due if self.model.time_out(name, self.following_id(name))]

    @rule()
    def expire(self) -> None:
        assert self.shard.expire() == self.model.expire(604_800_000)

    @rule()
    def fail_over(self) -> None:
        self.shard.fail_over()
        self.model.fail_over(self.in_version_0())

    @rule(version=st.sampled_from([0, 1, 2, 2, 2]))
    def set_feature(self, version: int) -> None:
        self.shard.version = TransactionVersion(version)
        self.model.feature = version

    # --- checks ---------------------------------------------------------------------------------------------

    def belief(self, client: str) -> Producer:
        return self.beliefs.get(client, (1, 0))

    def following_id(self, name: str) -> int:
        value = self.shard.state.transactions[name]
        return value.next_producer_id

    def send(self, request: Request) -> None:
        kind, client, name, producer, version, what = request
        self.sent.append(request)
        shard, fresh, before = self.shard, self.shard.next_producer_id, self.shard.state
        records = len(shard.log)
        expected: object
        answer: object
        match kind:
            case "init":
                assert isinstance(what, int)
                named = None if producer == NO_PRODUCER else producer
                expected = self.model.init(name, named, what, version, fresh)
                answer = shard.init(name, expected=producer, version=version, timeout_ms=what)
            case "add":
                assert isinstance(what, frozenset)
                rules = 2 if version > 3 else 0
                expected = dict.fromkeys(what, self.model.add(name, producer, set(what), version, rules))
                answer = shard.add(producer, what, name=name, version=version)
            case "verify":
                assert isinstance(what, frozenset)
                expected = self.model.verify(name, producer, set(what), version)
                answer = shard.add(producer, what, name=name, version=version, verify_only=True)
            case "offsets":
                expected = self.model.add(name, producer, {OFFSETS}, version, 0)
                answer = shard.add_offsets(producer, name=name, version=version)
            case _:
                assert isinstance(what, bool)
                expected = self.model.end(name, producer, what, version, fresh)
                answer = shard.end(producer, commit=what, version=version, name=name)
        assert code_of(answer) == expected
        is_fence = kind == "init" and expected == CONCURRENT_TRANSACTIONS and len(shard.log) > records
        succeeded = isinstance(answer, tuple) or answer == NONE
        if kind == "add":
            assert isinstance(answer, dict)
            succeeded = not any(answer.values())
        if not succeeded and not is_fence:
            assert (shard.state, len(shard.log)) == (before, records), "a refused request changes nothing"
        if isinstance(answer, tuple) and answer != NO_PRODUCER:
            self.check_session(producer, answer)
            self.beliefs[client] = answer
        if kind == "end" and version == 5 and succeeded:
            assert self.ends.setdefault(producer, bool(what)) == what, "one end, two stories"

    def check_session(self, producer: Producer, given: Producer) -> None:
        """Whoever named a producer goes on with its session; who named none begins one."""
        begun = max(self.sessions.values(), default=0) + 1
        session = begun if producer == NO_PRODUCER else self.sessions.setdefault(producer, begun)
        assert self.sessions.setdefault(given, session) == session, "two sessions with one epoch"

    @invariant()
    def state_is_that_of_the_model(self) -> None:
        transactions = self.shard.state.transactions
        assert set(transactions) == set(self.model.rows)
        for name, row in self.model.rows.items():
            assert as_row(transactions[name]) == row

    @invariant()
    def records_are_legal(self) -> None:
        """Judged by the bytes that were written, one record after the other."""
        new = self.shard.log[self.checked_records :]
        self.checked_records = len(self.shard.log)
        for key, encoded in new:
            record = decode_record(key, encoded)
            assert record is not None
            name, value = record.transactional_id, record.value
            old = self.values.get(name)
            self.values[name] = value
            if value is None:
                assert old is not None and old.state in KAFKAS_PREDECESSORS[None]
                continue
            assert old is None or old.state in KAFKAS_PREDECESSORS[value.state]
            assert self.highest.get(value.producer_id, 0) <= value.producer_epoch, "the epoch goes back"
            self.highest[value.producer_id] = value.producer_epoch
            assert self.owners.setdefault(value.producer_id, name) == name

    @invariant()
    def log_replays_to_the_live_state(self) -> None:
        rebuilt, live = self.shard.rebuilt(), self.shard.state
        assert (rebuilt.deadlines_ms, rebuilt.prepared) == (live.deadlines_ms, live.prepared)
        in_version_0 = self.in_version_0()
        assert dict(rebuilt.transactions) == {
            name: replace(
                value,
                last_producer_epoch=-1,
                previous_producer_id=-1 if name in in_version_0 else value.previous_producer_id,
            )
            for name, value in live.transactions.items()
        }

    def in_version_0(self) -> set[str]:
        """The ids whose last record is of version 0."""
        last = {key[4:].decode(): value for key, value in self.shard.log}
        return {name for name, value in last.items() if value is not None and value[:2] == bytes(2)}


def as_row(value: Transaction) -> Row:
    return Row(
        value.state.label,
        value.producer_id,
        value.producer_epoch,
        value.timeout_ms,
        value.last_update_timestamp_ms,
        value.previous_producer_id,
        value.last_producer_epoch,
        value.next_producer_id,
        value.start_timestamp_ms,
        int(value.client_version),
        set(value.partitions),
    )


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(max_examples=300, stateful_step_count=50)
