"""Compares the compiled kernels with the Python code that they replace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import pytest

from kreplica.errors import KafkaError, ProtocolError
from kreplica.wire import kernels

T = TypeVar("T")

NAMES = (
    "place_batches", "index_batches", "scan_batches", "match_requests", "fill_responses", "read_rows", "read_batches",
    "check_records", "encode_records", "decode_columns",
)  # fmt: skip

needs_kernels = pytest.mark.skipif(
    any(getattr(kernels, name) is None for name in NAMES), reason="the kernels are not compiled"
)


@contextmanager
def without_kernels() -> Iterator[None]:
    """Context in which the kernels are disabled and only Python code runs."""
    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(patch.object(kernels, name, None))
        yield


def both(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function with and without kernels, and check that both return the same result or raise the same error."""
    with without_kernels():
        expected = _outcome(function, arguments)
    outcome = _outcome(function, arguments)
    assert _comparable(outcome) == _comparable(expected)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _outcome(function: Callable[..., T], arguments: tuple[Any, ...]) -> T | Exception:
    try:
        return function(*arguments)
    except (KafkaError, ProtocolError, ValueError) as error:
        return error


def _comparable(outcome: object) -> object:
    if isinstance(outcome, Exception):
        return type(outcome), str(outcome), getattr(outcome, "code", None)
    return type(outcome), outcome
