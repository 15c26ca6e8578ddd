"""Request and response headers against kio, and malformed headers."""

import io

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_reader, entity_writer

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response_header,
    response_header_version,
)
from pykraft.kafka_protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from pykraft.kafka_protocol.messages.offsets import OffsetDeleteRequest
from pykraft.kafka_protocol.primitives import ProtocolError


@pytest.mark.parametrize("client_id", ["", "client", "\u00e9", None])
@pytest.mark.parametrize(("version", "kio_type"), [(8, KioHeaderV1), (9, KioHeaderV2)])
def test_request_header_agrees_with_kio(
    client_id: str | None, version: int, kio_type: type[KioHeaderV1 | KioHeaderV2]
) -> None:
    request = MetadataRequest(topics=None)
    frame = encode_request(request, version, 77, client_id)
    header, size = entity_reader(kio_type)(frame, 0)
    assert (header.request_api_key, header.request_api_version) == (3, version)
    assert (header.correlation_id, header.client_id) == (77, client_id)
    assert frame[size:] == request.encode(version)

    out = io.BytesIO()
    entity_writer(kio_type)(out, header)
    assert out.getvalue() == frame[:size]
    assert decode_request_header(frame) == (RequestHeader(3, version, 77, client_id), size)
    assert decode_request_header(memoryview(frame)) == (RequestHeader(3, version, 77, client_id), size)


def test_api_versions_response_has_header_0_in_every_version() -> None:
    for version in range(5):
        assert response_header_version(ApiKey.API_VERSIONS, version) == 0
        assert encode_response_header(ApiKey.API_VERSIONS, version, 5) == b"\0\0\0\x05"


def test_api_versions_request_of_a_future_version_has_a_readable_header() -> None:
    frame = bytearray(encode_request(ApiVersionsRequest(), 4, 5, "new"))
    frame[2:4] = b"\x00\x63"
    header, _ = decode_request_header(frame)
    assert (header.api_key, header.api_version, header.client_id) == (18, 99, "new")


def test_never_flexible_api_keeps_the_plain_headers() -> None:
    frame = encode_request(OffsetDeleteRequest(group_id="g"), 0, 1, "c")
    header, start = decode_request_header(frame)
    assert header.api_key == ApiKey.OFFSET_DELETE
    assert OffsetDeleteRequest.decode(frame[start:], 0).group_id == "g"
    assert response_header_version(ApiKey.OFFSET_DELETE, 0) == 0


@pytest.mark.parametrize("version", [8, 9])
def test_response_header_round_trips(version: int) -> None:
    frame = encode_response_header(ApiKey.METADATA, version, -5) + b"body"
    correlation_id, start = decode_response_header(ApiKey.METADATA, version, frame)
    assert correlation_id == -5
    assert frame[start:] == b"body"


def test_unknown_tags_of_headers_are_skipped() -> None:
    frame = encode_response_header(ApiKey.METADATA, 9, 1)[:-1] + b"\x01\x63\x02xy" + b"body"
    assert decode_response_header(ApiKey.METADATA, 9, frame) == (1, len(frame) - 4)
    request = encode_request(MetadataRequest(), 9, 1, "c")
    _, start = decode_request_header(request)
    tagged = request[: start - 1] + b"\x01\x63\x02xy" + request[start:]
    assert decode_request_header(tagged)[1] == start + 4


def test_header_of_an_unknown_api_names_the_client() -> None:
    header, _ = decode_request_header(b"\x27\x0f\x00\x01\x00\x00\x00\x02\x00\x03abc")
    assert header == RequestHeader(9999, 1, 2, "abc")


@pytest.mark.parametrize("version", [8, 9])
def test_truncated_header_is_refused(version: int) -> None:
    frame = encode_request(MetadataRequest(), version, 1, "client")
    _, start = decode_request_header(frame)
    for cut in range(start):
        with pytest.raises(ProtocolError):
            decode_request_header(frame[:cut])
    response = encode_response_header(ApiKey.METADATA, version, 1)
    for cut in range(len(response)):
        with pytest.raises(ProtocolError):
            decode_response_header(ApiKey.METADATA, version, response[:cut])


@pytest.mark.parametrize("tail", [b"\xff\xfe", b"\x80\x00", b"\x7f\xff", b"\x00\x02\xff\xff"])
def test_bad_client_id_is_refused(tail: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(b"\x00\x03\x00\x01\x00\x00\x00\x02" + tail)
