"""What refusals look like: one row of an answer for each row of a request that may not be done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
Refused = Callable[[Any, int], Row]
"""From a row of the request, and an error code, to the row of the answer."""


def named(asked: str | None = "name", answered: str = "name", **more: Any) -> Refused:
    """A row with a name and a code.

    :param asked: the field of the name in the request; None where its rows are the names.
    :param more: other fields that the answer must have.
    """

    def refused(row: Any, code: int) -> Row:
        return {answered: row if asked is None else row[asked], "error_code": code, **more}

    return refused


def with_partitions(
    name: str = "name",
    partitions: str = "partitions",
    index: str | None = "partition_index",
    answered: str = "partitions",
    answered_index: str = "partition_index",
    **more: Any,
) -> Refused:
    """A topic's row, with a row and a code for each of its partitions.

    :param index: the field of the number in the request; None where its rows are the numbers.
    :param more: other fields that the answer's partitions must have.
    """

    def refused(row: Row, code: int) -> Row:
        numbers = [each if index is None else each[index] for each in row[partitions] or ()]
        return {name: row[name], answered: [{answered_index: n, "error_code": code, **more} for n in numbers]}

    return refused


def config_resource(row: Row, code: int) -> Row:
    """Of the APIs of settings."""
    return {
        "error_code": code,
        "error_message": None,
        "resource_type": row["resource_type"],
        "resource_name": row["resource_name"],
        "configs": [],
    }
