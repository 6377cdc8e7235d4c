"""Produce interceptors see every batch, alone or in a run, with the principal of the client that sent it."""

from __future__ import annotations

from typing import Any

import pytest
from server_scene import request_frame
from test_server_produce_runs import Broker, batch, large_batch, produce
from zope.interface import implementer

from kreplica.interfaces import IProduceInterceptor, ProducedBatch, RejectBatch, ReplaceRecords
from kreplica.runtime.slices import SLICE_STEPS_MAX
from kreplica.server.produce.batching import ProduceRun
from kreplica.server.produce.interception import Interceptor
from kreplica.server.produce.sliced_produce import PARTITIONS_AT_ONCE, STEP_PARTITIONS
from kreplica.wire.batches import iter_headers
from kreplica.wire.compression import Codec
from kreplica.wire.messages import PRODUCE

MANY = max(PARTITIONS_AT_ONCE, SLICE_STEPS_MAX * STEP_PARTITIONS) + 100
HOST, OTHER_HOST = "1.2.3.4", "5.6.7.8"


@implementer(IProduceInterceptor)
class Recording:
    """Interceptor that records the batches, and changes or rejects some of them."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes | None]] = []
        self.note_offsets: list[int] = []

    def intercept(self, seen: ProducedBatch) -> RejectBatch | ReplaceRecords | None:
        value = seen.records[0].value
        self.seen.append((seen.topic_partition.topic, seen.principal.host, value))
        if value == b"refused":
            return RejectBatch("as the test wants it")
        if value == b"dropped":
            return ReplaceRecords([])
        if value == b"noted":
            return ReplaceRecords(seen.records, b"note")
        if value == b"changed":
            return ReplaceRecords([record._replace(value=b"CHANGED") for record in seen.records])
        return None

    def appended(self, _: ProducedBatch, note_offset: int) -> None:
        self.note_offsets.append(note_offset)


class Intercepting(Broker):
    """A broker with one interceptor."""

    def __init__(self) -> None:
        super().__init__(
            overrides=[
                "kreplica.produce.interceptors=required-headers",
                "kreplica.plugin.required-headers.headers=x",
                "transaction.partition.verification.enable=false",
            ]
        )
        self.plugin = Recording()
        interceptors = [Interceptor("recording", self.plugin, lambda activity: pytest.fail(activity))]
        self.program.plugins.interception._interceptors = interceptors


def batches_of(broker: Broker) -> list[tuple[int, bytes]]:
    """Return the position and content of each batch in the log, without the timestamps, which differ."""
    data = memoryview(broker.log())
    return [(position, bytes(data[position + 43 : position + header.size])) for position, header in iter_headers(data)]


def frames() -> list[bytes]:
    values = [b"first", b"refused", b"changed", b"noted", b"dropped", b"last"]
    plain = [batch(value) for value in values]
    idempotent = [
        batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)
        for sequence, value in ((0, b"changed"), (1, b"dropped"), (1, b"dropped"), (3, b"gap"), (2, b"noted"))
    ]
    large = [large_batch(1, Codec.GZIP), batch(b"noted", codec=Codec.GZIP)]
    batches = [*plain, *idempotent, *large, batch(b"after")]
    return [produce(number, records) for number, records in enumerate(batches)]


def test_a_run_is_intercepted_as_one_request_after_the_other() -> None:
    """The responses, the log and the interceptor's calls are the same."""
    together, apart = Intercepting(), Intercepting()
    apart.resources.dispatch._runs = None
    sizes: list[int] = []
    runs = together.resources.dispatch._runs
    handle = runs._handle

    def handle_run(run: ProduceRun) -> None:
        sizes.append(len(run.records))
        handle(run)

    runs._handle = handle_run
    for _ in range(3):
        together.read(*frames())
        for frame in frames():
            apart.read(frame)
    assert max(sizes) > 5, "the requests were not handled as runs"
    assert together.answers() == apart.answers()
    assert batches_of(together) == batches_of(apart)
    assert together.plugin.seen == apart.plugin.seen
    assert together.plugin.note_offsets == apart.plugin.note_offsets
    assert together.plugin.note_offsets
    assert {host for _, host, _ in together.plugin.seen} == {HOST}


@pytest.mark.parametrize("transactional", [False, True])
def test_a_request_between_the_slices_of_a_large_one(transactional: bool) -> None:
    """The interceptor sees each batch with the principal of the client that sent it."""
    broker = Intercepting()
    broker.cluster.run_until(broker.cluster.client().create_topic("many", MANY))
    broker.cluster.wait_in_sync("many", range(MANY))
    options: dict[str, Any] = {}
    if transactional:
        options = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    rows = [{"index": index, "records": batch(**options)} for index in range(MANY)]
    body = {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "many", "partition_data": rows}]}
    frame = request_frame(PRODUCE, 9, 1, {**body, "transactional_id": "app" if transactional else None})
    other = broker.connect(f"{OTHER_HOST}:5")
    with broker.resources.flush_scope:
        broker.resources.dispatch.frame_received(broker.connection, memoryview(bytearray(frame[4:])))
    broker.read(produce(7, batch()), connection=other)
    assert len(broker.plugin.seen) < MANY, "the large request was not handled in slices"
    broker.cluster.run_until(lambda: bool(broker.answers()))
    hosts = {(topic, host) for topic, host, _ in broker.plugin.seen}
    assert hosts == {("many", HOST), ("t", OTHER_HOST)}
    assert len(broker.plugin.seen) == MANY + 1
