"""Lossless conversion between records and JSON objects, which have the same members as messages in the REST API.

Bytes become text if they are valid UTF-8, otherwise base64; the member ``..._encoding`` contains the encoding.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

from kreplica.blocking.reader import ReadRecord
from kreplica.wire.records import Headers

UTF8, BASE64 = "utf8", "base64"
INT64_MAX = 2**63 - 1


class BadRecord(Exception):
    """A line of input is not a valid record."""


class InputRecord(NamedTuple):
    """A record to write.

    :param partition: if None, chosen by key, or arbitrarily if there is no key.
    :param timestamp_ms: None for the current time.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def record_document(record: ReadRecord) -> dict[str, Any]:
    """Convert a record to a JSON object."""
    key, key_encoding = _text(record.key)
    value, value_encoding = _text(record.value)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type.name.lower(),
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": [_header(name, data) for name, data in record.headers],
    }


def record_line(record: ReadRecord) -> bytes:
    """Convert a record to a line of JSON, without a newline; in ASCII, so that it does not depend on the locale."""
    return json.dumps(record_document(record), separators=(",", ":")).encode("ascii")


Encode = Callable[[Any], "bytes | None"]
"""Encodes a member of a line."""


def parse_line(line: bytes, encode_key: Encode | None = None, encode_value: Encode | None = None) -> InputRecord:
    """Parse a line; topic, offset and unknown members are ignored.

    :param encode_key: encodes the key, which may be any JSON value; if None, the key must be text or base64.
    :param encode_value: likewise for the value.
    :raise BadRecord: the line is not a valid record.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"invalid JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadRecord(f'expected a JSON object such as {{"key": "k", "value": "v"}}, not {_type_name(document)}')
    return InputRecord(
        _bytes(document, "key") if encode_key is None else encode_key(document.get("key")),
        _bytes(document, "value") if encode_value is None else encode_value(document.get("value")),
        _headers(document.get("headers")),
        _number(document, "partition", 0),
        _number(document, "timestamp_ms", -1),
    )


def _text(data: bytes | None) -> tuple[str | None, str | None]:
    if data is None:
        return None, None
    try:
        return data.decode(), UTF8
    except UnicodeDecodeError:
        return b64encode(data).decode("ascii"), BASE64


def _header(name: str, data: bytes | None) -> dict[str, Any]:
    value, encoding = _text(data)
    return {"key": name, "value": value, "encoding": encoding}


def _bytes(document: dict[str, Any], name: str, encoding_name: str | None = None) -> bytes | None:
    text = document.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise BadRecord(f"{name}: expected a string or null, not {_type_name(text)}")
    encoding = document.get(encoding_name or f"{name}_encoding")
    try:
        if encoding == BASE64:
            return b64decode(text, validate=True)
        if encoding in (UTF8, None):
            return text.encode()
    except ValueError as error:
        raise BadRecord(f"{name}: {error}") from None
    raise BadRecord(f"{name}: the encoding {encoding!r} is neither {UTF8} nor {BASE64}")


def _headers(headers: Any) -> Headers:
    if headers is None:
        return ()
    if isinstance(headers, dict):  # short form, for lines that people type
        headers = [{"key": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list) or not all(isinstance(each, dict) for each in headers):
        raise BadRecord(f"headers: expected a list of objects with key and value, not {_type_name(headers)}")
    return tuple((_name(each), _bytes(each, "value", "encoding")) for each in headers)


def _name(header: dict[str, Any]) -> str:
    name = header.get("key")
    if not isinstance(name, str):
        raise BadRecord(f"headers: expected a string as the key, not {_type_name(name)}")
    try:
        name.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise BadRecord(f"headers: {name!a}: {error.reason}") from None
    return name


def _number(document: dict[str, Any], name: str, lowest: int) -> int | None:
    number = document.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not lowest <= number <= INT64_MAX:
        raise BadRecord(f"{name}: expected an integer of at least {lowest}, not {json.dumps(number)[:40]}")
    return number


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
