"""One broker in virtual time, whose quotas the test sets, and a connection to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server_scene import parse_answer, request_frame
from sink import Sink

from kreplica.server.protocol.connection import Connection
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.messages import ALTER_CLIENT_QUOTAS, PRODUCE, Api
from kreplica.wire.records import Record

Row = dict[str, Any]


class QuotaScene:
    """One broker in virtual time, and a connection to it."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(seed=1, brokers=1)
        self.cluster.start()
        client = self.cluster.client()
        self.cluster.run_until(client.create_topic("t", 1, replication_factor=1))
        self.cluster.wait_in_sync("t", [0])
        self.program = self.cluster.brokers[self.cluster.leader_of("t", 0)].program
        self.resources = self.program.server.resources
        self.connection: Connection = self.resources.connection("PLAINTEXT", "1.2.3.4:5")
        self.sink = Sink()
        self.connection.attach(self.sink)

    def set_quota(self, name: str, value: float, entity: Sequence[Row] | None = None, *, remove: bool = False) -> None:
        rows = entity or [{"entity_type": "client-id", "entity_name": None}]
        row = self.alter(rows, {"key": name, "value": value, "remove": remove})
        assert row["error_code"] == 0, row

    def alter(self, entity: Sequence[Row], *ops: Row) -> Row:
        """Return the response of AlterClientQuotas for one entity."""
        body = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
        row: Row = self.ask(ALTER_CLIENT_QUOTAS, 1, body)["entries"][0]
        return row

    def ask(self, api: Api, version: int, body: Row) -> Row:
        return self.ask_all(api, version, [body])[0]

    def ask_all(self, api: Api, version: int, bodies: list[Row]) -> list[Row]:
        """Deliver requests as one read, and return the bodies of their responses."""
        before = len(self.sink.sends)
        self.cluster.run_until(lambda: not self.connection.paused)
        with self.resources.flush_scope:
            for body in bodies:
                frame = request_frame(api, version, 7, body)
                self.resources.dispatch.frame_received(self.connection, memoryview(bytearray(frame[4:])))
        found: list[Row] = []

        def are_complete() -> bool:
            stream, found[:] = memoryview(b"".join(self.sink.sends[before:])), []
            while len(stream) >= 4:
                end = 4 + int.from_bytes(stream[:4], "big")
                if end > len(stream):
                    return False
                found.append(parse_answer(stream[4:end], api.key, version)[1])
                stream = stream[end:]
            return len(found) == len(bodies)

        self.cluster.run_until(are_complete)
        return found

    def produce(self, size: int) -> Row:
        return self.ask(PRODUCE, 9, produce_body(size))


def produce_body(size: int) -> Row:
    records = build_batch([Record(NEXT_OFFSET, 1_700_000_000_000, None, bytes(size), ())])
    data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    return {"acks": 1, "timeout_ms": 1000, "topic_data": data}
