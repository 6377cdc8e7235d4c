"""Batches of writes and reads, with a result for each unit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from kreplica.zookeeper import (
    Acl,
    BadVersion,
    BatchLimits,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    GetChildren,
    GetData,
    GuardFailed,
    MultiFailed,
    NoNode,
    Operation,
    OperationResult,
    Read,
    ReadResult,
    RequestTooLarge,
    SetData,
    Stat,
    Unimplemented,
    ZooKeeperError,
    list_all,
    read_all,
    write_units,
)
from kreplica.zookeeper.batches import UnitOutcome
from kreplica.zookeeper.operations import encode_operation, size_at_most
from tests.support.zookeeper_scene import Scene, ServerUnderTest

STAT = Stat(1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)


def kinds(outcomes: Sequence[UnitOutcome]) -> list[str]:
    """Return the kind of each unit's outcome."""
    return ["written" if isinstance(outcome, list) else type(outcome).__name__ for outcome in outcomes]


class RecordingClient:
    """Records multis, which fail if they contain a path in ``conflicts``.

    :ivar gates: None, or a list to which each multi adds a Deferred that it waits for.
    """

    def __init__(self) -> None:
        self.conflicts: set[str] = set()
        self.sent: list[list[str]] = []
        self.gates: list[Deferred[None]] | None = None

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        self.sent.append([operation.path for operation in operations])
        if self.gates is None:
            return self._respond(operations)
        gate: Deferred[None] = Deferred()
        self.gates.append(gate)
        return gate.addCallback(lambda _: self._respond(operations))

    def _respond(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        for index, operation in enumerate(operations):
            if operation.path in self.conflicts:
                return fail(MultiFailed(index, BadVersion(operation.path), [None] * len(operations)))
        return succeed([STAT] * len(operations))


def run(coroutine: object) -> list[UnitOutcome]:
    """Return the result of a coroutine that never waits."""
    results: list[list[UnitOutcome]] = []
    Deferred.fromCoroutine(coroutine).addCallback(results.append)  # type: ignore[arg-type]
    (result,) = results
    return result


def test_multis_have_a_bounded_size() -> None:
    """The number of operations and of bytes is limited; a unit is never split, and a large one is sent alone."""
    client = RecordingClient()
    units = [[SetData(f"/{number}", b"x" * 100), Check(f"/{number}/c", 0)] for number in range(10)]
    units[4] = [SetData("/huge", b"x" * 10_000), Check("/huge/c", 0)]
    outcomes = run(write_units(client, units, limits=BatchLimits(bytes_max=1000, operations_max=6)))
    assert kinds(outcomes) == ["written"] * 10
    assert [len(paths) for paths in client.sent] == [6, 2, 2, 6, 4]
    assert client.sent[2] == ["/huge", "/huge/c"]


def test_concurrent_multis_are_bounded() -> None:
    """When the limit is reached, the next multi is sent after a response."""
    client = RecordingClient()
    client.gates = []
    done = Deferred.fromCoroutine(
        write_units(client, [[SetData(f"/{n}", b"")] for n in range(10)], None, BatchLimits(1000, 2, 3))
    )
    assert len(client.sent) == 3
    client.gates.pop().callback(None)
    assert len(client.sent) == 4
    while client.gates:
        client.gates.pop().callback(None)
    assert done.called
    assert len(client.sent) == 5


def test_conflict_affects_only_its_own_unit() -> None:
    """The failed unit is removed, and the remaining units are sent again."""
    client = RecordingClient()
    client.conflicts = {"/1", "/3"}
    outcomes = run(write_units(client, [[SetData(f"/{n}", b"")] for n in range(5)], Check("/epoch", 1)))
    assert kinds(outcomes) == ["written", "BadVersion", "written", "BadVersion", "written"]
    assert [sent[0] for sent in client.sent] == ["/epoch"] * 3
    assert [sent[1:] for sent in client.sent] == [
        ["/0", "/1", "/2", "/3", "/4"],
        ["/0", "/2", "/3", "/4"],
        ["/0", "/2", "/4"],
    ]
    assert outcomes[0] == [STAT]


def test_many_conflicts_cost_at_most_one_multi_each() -> None:
    """After a few rounds, each remaining unit is sent alone, so the number of multis stays linear."""
    client = RecordingClient()
    client.conflicts = {f"/{n}" for n in range(0, 100, 2)}
    outcomes = run(write_units(client, [[SetData(f"/{n}", b"")] for n in range(100)]))
    assert kinds(outcomes) == ["BadVersion", "written"] * 50
    assert len(client.sent) < 105


def test_failed_guard_stops_the_batch() -> None:
    """All units fail with GuardFailed, and pending ones are not sent."""
    client = RecordingClient()
    client.conflicts = {"/epoch"}
    units = [[SetData(f"/{n}", b"")] for n in range(10)]
    outcomes = run(write_units(client, units, Check("/epoch", 1), BatchLimits(operations_max=2, in_flight_max=1)))
    assert kinds(outcomes) == ["GuardFailed"] * 10
    assert len(client.sent) == 1
    failed = outcomes[9]
    assert isinstance(failed, GuardFailed)
    assert isinstance(failed.error, BadVersion)


def test_lost_connection_is_the_outcome_of_sent_units() -> None:
    """Whether these units were written is unknown."""
    client = RecordingClient()

    def lose(operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        return fail(ConnectionLoss())

    client.multi = lose  # type: ignore[method-assign]
    assert kinds(run(write_units(client, [[SetData("/a", b"")], [SetData("/b", b"")]]))) == ["ConnectionLoss"] * 2


def test_empty_batch_sends_nothing() -> None:
    client = RecordingClient()
    assert run(write_units(client, [])) == []
    assert client.sent == []


class OldServerClient:
    """A client of a server without multi-read."""

    def __init__(self) -> None:
        self.multi_read_count = 0

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]:
        self.multi_read_count += 1
        return fail(Unimplemented())

    def get_data(self, path: str) -> Deferred[tuple[bytes, Stat]]:
        if path == "/lost":
            return fail(ConnectionLoss(path))
        return fail(NoNode(path)) if path == "/none" else succeed((path.encode(), STAT))

    def get_children(self, path: str) -> Deferred[list[str]]:
        return fail(NoNode(path)) if path == "/none" else succeed([path[1:]])


def test_server_without_multi_read_is_read_one_by_one() -> None:
    """Single reads return the same results as a multi-read."""
    client = OldServerClient()
    first, missing = run(read_all(client, ["/a", "/none"]))
    assert first == (b"/a", STAT)
    assert isinstance(missing, NoNode)
    first, missing = run(list_all(client, ["/a", "/none"]))
    assert first == ["a"]
    assert isinstance(missing, NoNode)
    assert client.multi_read_count == 2


def test_failed_read_fails_the_batch() -> None:
    """A missing znode is a result; a lost connection is an error."""
    failures: list[BaseException] = []
    reading = Deferred.fromCoroutine(read_all(OldServerClient(), ["/a", "/lost", "/b"]))
    reading.addErrback(lambda failure: failures.append(failure.value))
    (failed,) = failures
    assert isinstance(failed, ConnectionLoss)


def test_thousands_of_writes_and_reads_on_a_server(zookeeper_server: ServerUnderTest) -> None:
    """Results of conditional writes with a guard, some of them in conflict, match the data read back."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.create("/epoch")
        await client.create("/states")
        paths = [f"/states/{number}" for number in range(2500)]
        created = await write_units(client, [[Create(path, b"0")] for path in paths])
        assert kinds(created) == ["written"] * 2500
        for path in (paths[7], paths[1234]):
            await client.set_data(path, b"somebody else's")

        guard = Check("/epoch", 0)
        outcomes = await write_units(client, [[SetData(path, b"1", 0)] for path in paths], guard)
        assert [index for index, outcome in enumerate(outcomes) if isinstance(outcome, BadVersion)] == [7, 1234]
        assert kinds(outcomes).count("written") == 2498

        await client.set_data("/epoch", b"another controller")
        outcomes = await write_units(client, [[SetData(path, b"2", 1)] for path in paths], guard)
        assert set(kinds(outcomes)) == {"GuardFailed"}

        responses = await read_all(client, [*paths, "/none"])
        assert isinstance(responses.pop(), NoNode)
        data = [response[0] for response in responses if not isinstance(response, ZooKeeperError)]
        assert data == [b"somebody else's" if index in (7, 1234) else b"1" for index in range(2500)]
        (children,) = await list_all(client, ["/states"])
        assert isinstance(children, list)
        assert len(children) == 2500

    zookeeper_server.run(scenario)


def test_oversized_unit_fails_alone(zookeeper_server: ServerUnderTest) -> None:
    """The other units are written."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.create("/a")
        units = [[SetData("/a", b"1")], [SetData("/a", b"x" * 2_000_000)], [SetData("/a", b"2")]]
        outcomes = await write_units(client, units)
        assert kinds(outcomes) == ["written", "RequestTooLarge", "written"]
        assert isinstance(outcomes[1], RequestTooLarge)

    zookeeper_server.run(scenario)


def test_response_larger_than_the_request_limit(zookeeper_server: ServerUnderTest) -> None:
    """Servers limit only the size of requests, so the response is received."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        for number in range(8):
            await client.create(f"/{number}", b"x" * 900_000)
        responses = await client.multi_read([*(GetData(f"/{number}") for number in range(8)), GetChildren("/")])
        assert [len(response) for response in responses if isinstance(response, list)] == [8]
        assert sum(len(response[0]) for response in responses if isinstance(response, tuple)) == 7_200_000

    zookeeper_server.run(scenario)


@pytest.mark.parametrize("limits", [BatchLimits(in_flight_max=0), BatchLimits(operations_max=1)])
def test_minimal_limits_still_make_progress(limits: BatchLimits) -> None:
    """With such limits, units are sent one at a time."""
    client = RecordingClient()
    assert kinds(run(write_units(client, [[SetData("/a", b"")], [SetData("/b", b"")]], None, limits))) == [
        "written",
        "written",
    ]


@pytest.mark.parametrize(
    "operation",
    [
        Create("/a/b", b"data"),
        Create("/a", None, ephemeral=True, sequence=True),
        Create("/a", b"x", acl=(Acl(31, "digest", "somebody:" + "x" * 60),)),
        SetData("/äöü", b"x" * 300, 7),
        SetData("/a", None),
        Delete("/a/b/c"),
        Check("/a", 3),
    ],
)
def test_estimated_size_is_an_upper_bound(operation):
    """The estimate of an operation is at least its encoded size, and not much more."""
    assert len(encode_operation(operation)) <= size_at_most(operation) <= len(encode_operation(operation)) + 70
