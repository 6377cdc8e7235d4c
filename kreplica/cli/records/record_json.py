"""A record as one JSON object, in the members that the REST API's messages have; both ways.

Bytes that are UTF-8 are text, others base64, and the member's ``..._encoding`` says which.  Nothing is lost.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, NamedTuple

from kreplica.blocking.reader import ReadRecord
from kreplica.wire.records import Headers

UTF8, BASE64 = "utf8", "base64"
INT64_MAX = 2**63 - 1


class BadRecord(Exception):
    """Text that is no record; says what is wrong with it."""


class GivenRecord(NamedTuple):
    """A record that somebody wants to write.

    :param partition: None: whichever the key, or the producer, chooses.
    :param timestamp_ms: None: now.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def record_document(record: ReadRecord) -> dict[str, Any]:
    """The record's JSON."""
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
    """The same as a line, without its end; ASCII, so that it survives any terminal."""
    return json.dumps(record_document(record), separators=(",", ":")).encode("ascii")


def parse_line(line: bytes) -> GivenRecord:
    """What a line gives; members that say where a record was read, or are unknown, are passed over.

    :raise BadRecord: it is no record.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"no JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadRecord(f'a JSON object is expected, as in {{"key": "k", "value": "v"}}, not {_kind(document)}')
    return GivenRecord(
        _bytes(document, "key"),
        _bytes(document, "value"),
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
        raise BadRecord(f"{name}: text or null is expected, not {_kind(text)}")
    encoding = document.get(encoding_name or f"{name}_encoding")
    try:
        if encoding == BASE64:
            return b64decode(text, validate=True)
        if encoding in (UTF8, None):
            return text.encode()
    except ValueError as error:
        raise BadRecord(f"{name}: {error}") from None
    raise BadRecord(f"{name}: its encoding {encoding!r} is neither {UTF8} nor {BASE64}")


def _headers(given: Any) -> Headers:
    if given is None:
        return ()
    if isinstance(given, dict):  # as people write them
        given = [{"key": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise BadRecord(f"headers: a list of objects with key and value is expected, not {_kind(given)}")
    return tuple((_name(each), _bytes(each, "value", "encoding")) for each in given)


def _name(header: dict[str, Any]) -> str:
    name = header.get("key")
    if not isinstance(name, str):
        raise BadRecord(f"headers: a key that is text is expected, not {_kind(name)}")
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
        raise BadRecord(f"{name}: a number from {lowest} on is expected, not {json.dumps(number)[:40]}")
    return number


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")
