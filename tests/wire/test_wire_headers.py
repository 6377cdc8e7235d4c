"""Headers of requests and responses."""

from __future__ import annotations

import pytest

from kreplica.errors import ProtocolError
from kreplica.wire.headers import (
    RequestHeader,
    build_request_header,
    build_response_header,
    parse_request_header,
    parse_response_header,
)
from kreplica.wire.messages import API_VERSIONS, APIS, CONTROLLED_SHUTDOWN, FETCH, OFFSET_DELETE

REQUEST_1 = bytes.fromhex(
    "0001"  # api key 1, Fetch
    "000b"  # version 11
    "00000007"  # correlation id 7
    "0003" "636c69"  # client id "cli"
)  # fmt: skip
REQUEST_2 = bytes.fromhex(
    "0001"  # api key 1, Fetch
    "000c"  # version 12
    "ffffffff"  # correlation id -1
    "0003" "636c69"  # client ID "cli": even in flexible versions, its length has two bytes (KIP-482)
    "00"  # no tags
)  # fmt: skip
REQUEST_0 = bytes.fromhex(
    "0007"  # api key 7, ControlledShutdown
    "0000"  # version 0
    "00000007"  # correlation id 7; no client id
)
REQUEST_WITH_TAGS = REQUEST_2[:-1] + bytes.fromhex(
    "02"  # two tags
    "00" "01" "ff"  # tag 0, one byte
    "8101" "00"  # tag 129, no bytes
)  # fmt: skip


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (REQUEST_0, RequestHeader(7, 0, 7, None, 8)),
        (REQUEST_1, RequestHeader(1, 11, 7, "cli", 13)),
        (REQUEST_1[:8] + b"\xff\xff", RequestHeader(1, 11, 7, None, 10)),
        (REQUEST_1[:8] + b"\x00\x00", RequestHeader(1, 11, 7, "", 10)),
        (REQUEST_2, RequestHeader(1, 12, -1, "cli", 14)),
        (REQUEST_2[:8] + b"\xff\xff\x00", RequestHeader(1, 12, -1, None, 11)),
    ],
)
def test_golden_request_headers(data: bytes, header: RequestHeader) -> None:
    """Each kind of header is built and parsed as documented, whatever bytes follow it."""
    api = APIS[header.api_key]
    version = api.request_header_version(header.api_version)
    assert build_request_header(version, *header[:4]) == data
    assert parse_request_header(data) == header
    assert parse_request_header(memoryview(data + b"body")) == header


def test_tags_of_a_request_header_are_skipped() -> None:
    """A request header may contain unknown tags of any size."""
    assert parse_request_header(REQUEST_WITH_TAGS + b"body").body_offset == len(REQUEST_WITH_TAGS)


@pytest.mark.parametrize("data", [REQUEST_0, REQUEST_1, REQUEST_2, REQUEST_WITH_TAGS])
def test_truncated_request_headers_are_refused(data: bytes) -> None:
    for cut in range(len(data)):
        with pytest.raises(ProtocolError, match=r"^RequestHeader"):
            parse_request_header(data[:cut])


@pytest.mark.parametrize(
    ("tail", "path"),
    [
        (b"\xff\xfe\x00", "RequestHeader.client_id"),  # length -2
        (b"\x00\x01\xff\x00", "RequestHeader.client_id"),  # not UTF-8
        (b"\xff\xff\x02\x05\x00\x05\x00", "RequestHeader.tags"),  # tag 5 twice
        (b"\xff\xff\x01\x05\x09\x00", "RequestHeader.tags"),  # nine missing bytes
        (b"\xff\xff\xff\xff\xff\xff\x0f", "RequestHeader.tags"),  # a count beyond any frame
    ],
)
def test_malformed_request_headers_are_refused(tail: bytes, path: str) -> None:
    """The error names the invalid part."""
    with pytest.raises(ProtocolError) as caught:
        parse_request_header(REQUEST_2[:8] + tail)
    assert caught.value.path == path


@pytest.mark.parametrize(("key", "version"), [(1, 99), (1, -1), (999, 0), (-1, 0), (18, 5)])
def test_unknown_requests_are_read_up_to_their_correlation_id(key: int, version: int) -> None:
    """Nothing after the correlation ID is parsed, so such a request can still get a response (KIP-511)."""
    data = build_request_header(0, key, version, 42) + b"\x80" * 9
    assert parse_request_header(data) == RequestHeader(key, version, 42, None, None)


def test_golden_response_headers() -> None:
    """The plain header contains the correlation ID, the flexible header also tags."""
    assert build_response_header(0, 7) == bytes.fromhex("00000007")
    assert build_response_header(1, -2) == bytes.fromhex("fffffffe00")
    assert parse_response_header(0, bytes.fromhex("00000007ff")) == (7, 4)
    assert parse_response_header(1, bytes.fromhex("fffffffe00ff")) == (-2, 5)
    assert parse_response_header(1, bytes.fromhex("fffffffe010302ffffff")) == (-2, 9)


@pytest.mark.parametrize("data", ["", "000000", "00000007", "0000000701", "000000070103", "00000007010302ff"])
def test_truncated_response_headers_are_refused(data: str) -> None:
    with pytest.raises(ProtocolError, match=r"^ResponseHeader"):
        parse_response_header(1, bytes.fromhex(data))


def test_header_versions() -> None:
    """In flexible versions, both headers have tags, with two exceptions that the protocol defines."""
    assert [FETCH.request_header_version(version) for version in (0, 11, 12, 17)] == [1, 1, 2, 2]
    assert [FETCH.response_header_version(version) for version in (0, 11, 12, 17)] == [0, 0, 1, 1]
    assert [API_VERSIONS.request_header_version(version) for version in range(5)] == [1, 1, 1, 2, 2]
    assert [API_VERSIONS.response_header_version(version) for version in range(5)] == [0] * 5
    assert [CONTROLLED_SHUTDOWN.request_header_version(version) for version in range(4)] == [0, 1, 1, 2]
    assert (OFFSET_DELETE.request_header_version(0), OFFSET_DELETE.response_header_version(0)) == (1, 0)


def test_oversized_client_id_is_refused() -> None:
    """A client ID of more than 32,767 bytes cannot be encoded."""
    with pytest.raises(ProtocolError):
        build_request_header(1, 1, 11, 0, "x" * 40_000)
