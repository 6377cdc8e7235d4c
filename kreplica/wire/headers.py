"""Headers of requests and responses, whose layout depends on the version (KIP-482)."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from kreplica.errors import ProtocolError
from kreplica.wire.messages import APIS
from kreplica.wire.primitives import Buffer, MalformedError, read_tags

_START = Struct(">hhi")
_START_AND_LENGTH = Struct(">hhih")
_CORRELATION_ID = Struct(">i")
_LENGTH = Struct(">h")
_NO_TAGS = b"\x00"
_new_tuple = tuple.__new__

_HEADER_VERSIONS = {
    (api.key, version): api.request_header_version(version)
    for api in APIS.values()
    for version in range(api.versions[0], api.versions[1] + 1)
}


class RequestHeader(NamedTuple):
    """Header of a request.

    :param client_id: None if the client did not send one, or if ``body_offset`` is None.
    :param body_offset: position of the body in the frame; None if the API or the version is unknown, in which case the
        header is parsed only up to the correlation ID.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int | None


def parse_request_header(frame: Buffer) -> RequestHeader:
    """Parse the header of a request.

    :param frame: without its length prefix.
    :raise ProtocolError: the frame ends within the header, or the header is malformed.
    """
    try:
        api_key, api_version, correlation_id = _START.unpack_from(frame)
        header_version = _HEADER_VERSIONS.get((api_key, api_version))
        if header_version is None:
            return RequestHeader(api_key, api_version, correlation_id, None, None)
        client_id, end = None, 8
        if header_version:
            length: int = _LENGTH.unpack_from(frame, 8)[0]
            end = 10
            if length >= 0:
                end += length
                client_id = str(frame[10:end], "utf-8")
            elif length != -1:
                raise ProtocolError("RequestHeader.client_id", f"length {length} is not allowed")
            if header_version == 2:
                end = _skip_tags(frame, end) if frame[end] else end + 1
            if end > len(frame):
                raise ProtocolError("RequestHeader.client_id", f"has {length} bytes, but {len(frame) - 10} remain")
        return _new_tuple(RequestHeader, (api_key, api_version, correlation_id, client_id, end))
    except UnicodeDecodeError as error:
        raise ProtocolError("RequestHeader.client_id", f"is not UTF-8: {error.reason}") from None
    except (StructError, IndexError):
        raise ProtocolError("RequestHeader", f"the frame of {len(frame)} bytes ends within the header") from None
    except MalformedError:
        raise ProtocolError("RequestHeader.tags", "the tag section is malformed") from None


def build_request_header(
    header_version: int, api_key: int, api_version: int, correlation_id: int, client_id: str | None = None
) -> bytes:
    """Build the header of a request.

    :param header_version: 0, 1 or 2; see ``Api.request_header_version``.
    """
    if header_version == 0:
        return _START.pack(api_key, api_version, correlation_id)
    client = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(client)
    try:
        start = _START_AND_LENGTH.pack(api_key, api_version, correlation_id, length)
    except StructError as error:
        raise ProtocolError("RequestHeader", str(error)) from None
    return start + client + (_NO_TAGS if header_version == 2 else b"")


def parse_response_header(header_version: int, frame: Buffer) -> tuple[int, int]:
    """Parse the header of a response.

    :param header_version: 0 or 1; see ``Api.response_header_version``.
    :return: the correlation ID, and the position of the body in the frame.
    :raise ProtocolError: the frame ends within the header, or the header is malformed.
    """
    try:
        correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
        if not header_version:
            return correlation_id, 4
        return correlation_id, _skip_tags(frame, 4) if frame[4] else 5
    except (StructError, IndexError):
        raise ProtocolError("ResponseHeader", f"the frame of {len(frame)} bytes ends within the header") from None
    except MalformedError:
        raise ProtocolError("ResponseHeader.tags", "the tag section is malformed") from None


def build_response_header(header_version: int, correlation_id: int) -> bytes:
    """Build the header of a response.

    :param header_version: 0 or 1; see ``Api.response_header_version``.
    """
    return _CORRELATION_ID.pack(correlation_id) + (_NO_TAGS if header_version else b"")


def _skip_tags(frame: Buffer, position: int) -> int:
    """Return the position after a tag section that is not empty."""
    return read_tags(frame, position + 1, len(frame), frame[position], 0, {})[1]
