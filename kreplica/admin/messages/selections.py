"""Converts query parameters and bodies of requests for records."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from kreplica.admin.http.problems import Problem
from kreplica.admin.messages.scanning import Selection
from kreplica.admin.messages.searching import search_for
from kreplica.formats.catalogue import AUTO, BASE64, TEXT, Formats
from kreplica.formats.filters import FilterError, RecordFilter, compile_filter
from kreplica.formats.messages import RecordView
from kreplica.formats.record_schemas import RecordSchemas
from kreplica.interfaces.formats import FormatError, RegisteredSchema
from kreplica.runtime.offload import Offload


async def selection_of(formats: Formats, offload: Offload, topic: str, query: Mapping[str, Any]) -> Selection:
    """Return the selection of a request with the parameters ``SELECTION``.

    :raise Problem: 400 for an unknown format, or an invalid search or filter.
    """
    text = query["filter"]
    # In a thread, because the first filter loads the library.
    record_filter = await offload.run(_filter_of, text) if text is not None and text.strip() else None
    for name in ("key_format", "value_format"):
        _check_format(formats, f"the query parameter '{name}'", query[name])
    view = RecordView(
        formats,
        topic,
        query["key_format"],
        query["value_format"],
        record_filter,
        with_base64=query["raw"],
    )
    return Selection(view, search_for(query["search"]), query["control_records"])


def _filter_of(text: str) -> RecordFilter:
    try:
        return compile_filter(text)
    except FilterError as error:
        raise Problem(
            400,
            "INVALID_FILTER",
            f"the query parameter 'filter': {error}",
            what_to_do='Use a CEL expression such as value.total > 100 && headers.source == "web".',
            members={"column": error.column},
        ) from None


def _check_format(formats: Formats, where: str, name: str) -> None:
    if name == AUTO:
        return
    try:
        formats.named(name)
    except FormatError as error:
        raise Problem(400, "INVALID_REQUEST", f"{where}: {error}") from None


async def encoded_part(
    formats: Formats, schemas: RecordSchemas, offload: Offload, body: Mapping[str, Any], name: str
) -> bytes | None:
    """Return the bytes of the key or value of a record to write, which is encoded in a thread.

    :param name: ``key`` or ``value``.
    :raise Problem: 400 if it cannot be encoded.
    """
    value, chosen, reference = body.get(name), body.get(f"{name}_format", TEXT), body.get(f"{name}_schema")
    if value is None:
        return None
    where = f"body.{name}"
    if chosen == BASE64:
        return from_base64(value, where)
    _check_format(formats, f"body.{name}_format", chosen)
    record_format = formats.named(chosen)
    if not record_format.can_encode:
        raise Problem(400, "INVALID_REQUEST", f"body.{name}_format: records cannot be written as {chosen}")
    try:
        schema = await _schema_of(schemas, reference, f"body.{name}_schema") if record_format.schema_type else None
        message = (reference or {}).get("message")
        data: bytes = await offload.run(record_format.encode, value, schema, message)
    except FormatError as error:
        raise Problem(400, "INVALID_REQUEST", f"{where} as {chosen}: {error}") from None
    return data


async def _schema_of(schemas: RecordSchemas, reference: Mapping[str, Any] | None, where: str) -> RegisteredSchema:
    if reference is None or ("id" in reference) == ("subject" in reference):
        raise Problem(400, "INVALID_REQUEST", f"{where}: the format requires either the ID or the subject of a schema")
    return await schemas.for_writing(reference.get("id"), reference.get("subject"), reference.get("version"))


def from_base64(text: Any, where: str) -> bytes:
    """Return the bytes of a text.

    :raise Problem: 400 for malformed base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise Problem(400, "INVALID_REQUEST", f"{where} is not valid base64: {error}") from None
