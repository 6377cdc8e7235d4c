"""Decodes the response to a multi into one result per operation, or into ``MultiFailed``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from kreplica.errors import ProtocolError
from kreplica.zookeeper.connection import Decode
from kreplica.zookeeper.errors import MultiFailed, error_of
from kreplica.zookeeper.operations import Operation
from kreplica.zookeeper.responses import Created, OperationResult, decode_multi_results


def multi_decoder(operations: Sequence[Operation], relative: Callable[[str], str] | None) -> Decode:
    """Return the decoder of the response to these operations.

    :param relative: removes the chroot from a path; None without a chroot.
    """

    def decode(data: bytes, start: int, end: int) -> list[OperationResult]:
        results = decode_multi_results(data, start, end)
        if len(results) != len(operations):
            raise ProtocolError("multi", f"{len(results)} results for {len(operations)} operations")
        if results and isinstance(results[0], int):
            raise _failure(operations, cast(list[int], results))
        if relative is not None:
            for index, result in enumerate(results):
                if isinstance(result, Created):
                    results[index] = result._replace(path=relative(result.path))
        return cast(list[OperationResult], results)

    return decode


def _failure(operations: Sequence[Operation], codes: list[int]) -> MultiFailed:
    errors = [
        error_of(code, operation.path) if code else None for code, operation in zip(codes, operations, strict=True)
    ]
    index, error = next(((index, error) for index, error in enumerate(errors) if error is not None), (0, None))
    return MultiFailed(index, error or error_of(-1, operations[0].path), errors)
