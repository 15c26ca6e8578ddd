"""The registers of the self-test: committed offsets, configurations at two brokers, ids; and anomalies."""

from collections.abc import Sequence

from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.self_test.planting import Plant, Plants, edited
from pykraft.jepsen_like.faults.history import Event, EventType

OFFSETS, CONFIG, IDS = "offsets/registers-0", "registers/retention.ms", "producer-ids"
STEP_US = 1000


def clean_registers(start_us: int) -> list[Event]:
    """Two commits overlap, and a third is never answered; one broker lags behind the other; a few ids."""
    events = [
        Event("info", "runner", 0, "register", OFFSETS),
        _committed("a", None),
        _commit("invoke", "a", 1),
        _commit("invoke", "b", 2),
        _committed("c", ("a", 1)),
        _commit("ok", "a", 1),
        _committed("c", ("b", 2)),
        _commit("ok", "b", 2),
        _commit("invoke", "a", 3),
        _commit("info", "a", 3),
        _committed("b", ("b", 2)),
        _committed("b", ("a", 3)),
        *(_set(kind, value) for value in "123" for kind in ("invoke", "ok")),
        *(_look(broker, value) for broker, value in ((1, "1"), (2, "3"), (1, "1"), (1, "2"), (2, "3"))),
        _set("invoke", "4"),
        _set("info", "4"),
        _set("invoke", "5"),
        _set("ok", "5"),
        *(_look(2, value) for value in "545"),
        *(Event("ok", "c", 0, "allocate", IDS, str(id)) for id in (1000, 0, 1001, 1)),
    ]
    return [replace(event, time_us=start_us + STEP_US * (1 + n)) for n, event in enumerate(events)]


def _commit(kind: EventType, process: str, offset: int) -> Event:
    return Event(kind, process, 0, "commit", OFFSETS, f"{process}#{offset}", offset)


def _committed(process: str, found: tuple[str, int] | None) -> Event:
    writer, offset = found or (None, None)
    return Event("ok", process, 0, "committed", OFFSETS, writer and f"{writer}#{offset}", offset)


def _set(kind: EventType, value: str) -> Event:
    return Event(kind, "admin", 0, "set", CONFIG, value)


def _look(broker: int, value: str) -> Event:
    return Event("ok", "looker", 0, "look", CONFIG, value, detail={"broker": broker})


# --- plants ------------------------------------------------------------------------------------------------


def _places(events: Sequence[Event], op: str, key: str) -> list[int]:
    return [n for n, e in enumerate(events) if (e.op, e.key, e.type) == (op, key, "ok")]


def _shown(op: str, key: str, nth: int, value: str) -> Plant:
    return lambda events: edited(events, _places(events, op, key)[nth], value=value)


def _read_in_turns(events: list[Event]) -> list[Event]:
    """Two commits overlap: the first is found, then the second, and then the first again."""
    place = _places(events, "committed", OFFSETS)[2]
    again = replace(events[place], value="a#1", offset=1, time_us=events[place].time_us + 1)
    return [*events[: place + 1], again, *events[place + 1 :]]


_go_back = _shown("look", CONFIG, 4, "2")
_look_ahead = _shown("look", CONFIG, 0, "5")
_repeat_id = _shown("allocate", IDS, -1, "1000")

REGISTER_PLANTS: Plants = (
    ("two commits are found in turns", Anomaly.NONLINEARIZABLE, _read_in_turns),
    ("a broker shows an older configuration", Anomaly.CONFIG_WENT_BACK, _go_back),
    ("a broker shows what is set later", Anomaly.PHANTOM_CHANGE, _look_ahead),
    ("an id is given out twice", Anomaly.REPEATED_ID, _repeat_id),
)
