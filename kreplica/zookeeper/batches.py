"""Splits batches of writes or reads into multis of bounded size and pipelines them.

A unit is a sequence of operations that must be applied atomically.  A multi, which contains many units, is atomic too,
so one conflict fails all of them.  The unit with the conflict is then removed and the others are sent again: a conflict
costs one more round trip but does not fail unrelated units.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from twisted.internet.defer import Deferred, DeferredList, DeferredSemaphore
from twisted.python.failure import Failure

from kreplica.zookeeper.errors import MultiFailed, NoAuth, NoNode, Unimplemented, ZooKeeperError
from kreplica.zookeeper.operations import Check, GetChildren, GetData, Operation, Read, size_at_most
from kreplica.zookeeper.records import Stat
from kreplica.zookeeper.responses import OperationResult, ReadResult

T = TypeVar("T")

Unit: TypeAlias = Sequence[Operation]
# Outcome of a unit: one result per operation, or the error that prevented all of them.
UnitOutcome: TypeAlias = "list[OperationResult] | ZooKeeperError"


class GuardFailed(ZooKeeperError):
    """The guard check failed, so the unit was not written; the writer has been fenced.

    :param error: the guard's error, usually ``BadVersion``.
    """

    def __init__(self, error: ZooKeeperError) -> None:
        super().__init__(error.path, f"the write's guard check failed: {error.message or error.meaning}")
        self.error = error


class MultiWriter(Protocol):
    """The part of the client that ``write_units`` uses."""

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]: ...


class MultiReader(Protocol):
    """The part of the client that ``read_all`` and ``list_all`` use."""

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]: ...

    def get_data(self, path: str) -> Deferred[tuple[bytes, Stat]]: ...

    def get_children(self, path: str) -> Deferred[list[str]]: ...


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits on the size of a multi and on the number of multis in flight.

    :param bytes_max: maximum size of a multi's operations in bytes; a unit larger than this is sent in its own multi.
    :param operations_max: maximum number of operations in a multi, and of reads in a multi-read.
    :param in_flight_max: maximum number of unanswered multis.
    :param conflicts_max: once a multi has had more conflicts than this, each remaining unit is sent in its own multi.
    """

    bytes_max: int = 512 * 1024
    operations_max: int = 1000
    in_flight_max: int = 16
    conflicts_max: int = 3


DEFAULT_LIMITS = BatchLimits()


async def write_units(
    client: MultiWriter, units: Sequence[Unit], guard: Check | None = None, limits: BatchLimits = DEFAULT_LIMITS
) -> list[UnitOutcome]:
    """Write each unit atomically, independently of the other units.

    The units must not share znodes, because their order is not preserved after a conflict.

    :param guard: first operation of every multi.  Once it fails, the outcome of every unit not yet written is
        ``GuardFailed``.
    :return: one outcome per unit, in order; after ``ConnectionLoss``, the unit may or may not have been written.
    """
    batch = _Writes(client, units, guard, limits)
    await _gather([batch.write(indices) for indices in _split(units, limits)], limits.in_flight_max)
    return cast("list[UnitOutcome]", batch.outcomes)


class _Writes:
    """State of one ``write_units`` call: the units and their outcomes so far."""

    def __init__(self, client: MultiWriter, units: Sequence[Unit], guard: Check | None, limits: BatchLimits) -> None:
        self._client = client
        self._units = units
        self._guard_operations: list[Operation] = [] if guard is None else [guard]
        self._limits = limits
        self._guard_failed: GuardFailed | None = None
        self.outcomes: list[UnitOutcome | None] = [None] * len(units)

    async def write(self, indices: list[int]) -> None:
        """Write units in one multi; after each conflict, retry without the unit that failed."""
        conflicts = 0
        while indices:
            if conflicts > self._limits.conflicts_max and len(indices) > 1:
                await _gather([self.write([index]) for index in indices], self._limits.in_flight_max)
                return
            failed = await self._write_once(indices)
            if failed is None:
                return
            indices = [index for index in indices if index != failed]
            conflicts += 1

    async def _write_once(self, indices: list[int]) -> int | None:
        """Send one multi; return the index of the unit that failed, or None if the outcome of all units is known."""
        if self._guard_failed is not None:
            self._set_error(indices, self._guard_failed)
            return None
        operations = [*self._guard_operations, *(operation for index in indices for operation in self._units[index])]
        try:
            results = await self._client.multi(operations)
        except MultiFailed as failed:
            return self._handle_failed_multi(indices, failed)
        except ZooKeeperError as error:
            self._set_error(indices, error)
            return None
        position = len(self._guard_operations)
        for index in indices:
            end = position + len(self._units[index])
            self.outcomes[index] = results[position:end]
            position = end
        return None

    def _handle_failed_multi(self, indices: list[int], failed: MultiFailed) -> int | None:
        position = failed.index - len(self._guard_operations)
        if position < 0:
            self._guard_failed = GuardFailed(failed.error)
            self._set_error(indices, self._guard_failed)
            return None
        for index in indices:
            position -= len(self._units[index])
            if position < 0:
                self.outcomes[index] = failed.error
                return index
        raise failed

    def _set_error(self, indices: list[int], error: ZooKeeperError) -> None:
        for index in indices:
            self.outcomes[index] = error


def _split(units: Sequence[Unit], limits: BatchLimits) -> Iterator[list[int]]:
    indices: list[int] = []
    count = size = 0
    for index, unit in enumerate(units):
        unit_size = sum(map(size_at_most, unit))
        if indices and (size + unit_size > limits.bytes_max or count + len(unit) > limits.operations_max):
            yield indices
            indices, count, size = [], 0, 0
        indices.append(index)
        count += len(unit)
        size += unit_size
    if indices:
        yield indices


async def read_all(
    client: MultiReader, paths: Sequence[str], limits: BatchLimits = DEFAULT_LIMITS
) -> list[tuple[bytes, Stat] | ZooKeeperError]:
    """Read the data and stat of many znodes.

    :return: for each path, (data, stat), or ``NoNode`` or ``NoAuth`` as a value.  Each multi-read sees one state of
        the tree, but different multi-reads may see different states.
    :raise ZooKeeperError: a read could not be completed, for example because of a connection loss.
    """
    results = await _read(GetData, paths, client, limits)
    return cast("list[tuple[bytes, Stat] | ZooKeeperError]", results)


async def list_all(
    client: MultiReader, paths: Sequence[str], limits: BatchLimits = DEFAULT_LIMITS
) -> list[list[str] | ZooKeeperError]:
    """Read the names of the children of many znodes; errors and consistency are as for ``read_all``."""
    results = await _read(GetChildren, paths, client, limits)
    return cast("list[list[str] | ZooKeeperError]", results)


async def _read(
    kind: type[GetData] | type[GetChildren], paths: Sequence[str], client: MultiReader, limits: BatchLimits
) -> list[ReadResult]:
    size = limits.operations_max
    batches = [paths[start : start + size] for start in range(0, len(paths), size)]
    results = await _gather([_read_batch(kind, client, batch) for batch in batches], limits.in_flight_max)
    return [result for batch in results for result in batch]


async def _read_batch(
    kind: type[GetData] | type[GetChildren], client: MultiReader, paths: Sequence[str]
) -> list[ReadResult]:
    reads: list[Read] = [kind(path) for path in paths]
    try:
        return await client.multi_read(reads)
    except Unimplemented:
        # Servers before 3.6 lack multi-read: send the reads individually, pipelined.
        return await _gather([_read_one(client, read) for read in reads], len(reads))


async def _read_one(client: MultiReader, read: Read) -> ReadResult:
    try:
        if isinstance(read, GetData):
            return await client.get_data(read.path)
        return await client.get_children(read.path)
    except (NoNode, NoAuth) as error:
        return error


async def _gather(coroutines: Sequence[Coroutine[Deferred[Any], Any, T]], in_flight_max: int) -> list[T]:
    """Run at most ``in_flight_max`` coroutines at a time; return all results in order, or raise the first error."""
    semaphore = DeferredSemaphore(max(in_flight_max, 1))

    def start(coroutine: Coroutine[Deferred[Any], Any, T]) -> Deferred[T]:
        return semaphore.run(lambda: Deferred.fromCoroutine(coroutine))

    outcomes = await DeferredList([start(each) for each in coroutines], consumeErrors=True)
    for succeeded, outcome in outcomes:
        if not succeeded:
            cast(Failure, outcome).raiseException()
    return [outcome for _succeeded, outcome in outcomes]
