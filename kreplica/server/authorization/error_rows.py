"""Builds the error rows of rejected requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
ErrorRowBuilder = Callable[[Any, int], Row]
"""Function from a request row and an error code to a response row."""


def name_row(request_field: str | None = "name", response_field: str = "name", **fields: Any) -> ErrorRowBuilder:
    """Build a row with a name and an error code.

    :param request_field: the request field with the name; None if each row is itself the name.
    :param fields: other required fields of the response.
    """

    def build(row: Any, code: int) -> Row:
        return {response_field: row if request_field is None else row[request_field], "error_code": code, **fields}

    return build


def with_partitions(
    name: str = "name",
    partitions: str = "partitions",
    index: str | None = "partition_index",
    response_field: str = "partitions",
    response_index: str = "partition_index",
    **fields: Any,
) -> ErrorRowBuilder:
    """Build a topic row with an error code for each partition.

    :param index: the request field with the partition number; None if each row is itself the number.
    :param fields: other required fields of the partition rows.
    """

    def build(row: Row, code: int) -> Row:
        numbers = [each if index is None else each[index] for each in row[partitions] or ()]
        return {name: row[name], response_field: [{response_index: n, "error_code": code, **fields} for n in numbers]}

    return build


def config_resource(row: Row, code: int) -> Row:
    """Build a row of the config APIs."""
    return {
        "error_code": code,
        "error_message": None,
        "resource_type": row["resource_type"],
        "resource_name": row["resource_name"],
        "configs": [],
    }
