"""Ids and their text form."""

import pytest

from pykraft.kafka_protocol.ids import (
    METADATA_TOPIC_ID,
    ZERO_UUID,
    make_uuid,
    uuid_from_str,
    uuid_to_str,
)


def test_id_text_round_trips() -> None:
    for first in range(256):
        value = bytes([first]) + bytes(range(1, 16))
        text = uuid_to_str(value)  # type: ignore[arg-type]
        assert len(text) == 22
        assert uuid_from_str(text) == value


def test_reserved_ids_have_kafkas_text() -> None:
    assert uuid_to_str(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_str(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    "text", ["", "A", "AAAA", "A" * 21, "A" * 23, "A" * 43, "!" * 22, "+" + "A" * 21, "/" + "A" * 21]
)
def test_text_that_is_not_an_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="id"):
        uuid_from_str(text)


def test_made_id_is_of_type_four_and_never_looks_like_a_flag() -> None:
    value = make_uuid(bytes(range(16)))
    assert value is not None
    assert value[6] >> 4 == 4
    assert value[8] >> 6 == 2
    assert make_uuid(b"\xf8" + bytes(15)) is None
