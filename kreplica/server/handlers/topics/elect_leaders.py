"""ElectLeaders (key 43): triggers preferred or unclean leader elections (KIP-460)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import answer_from

Row = dict[str, Any]

Results = Mapping[TopicPartition, ErrorCode]

AskElection = Callable[[int, "list[TopicPartition] | None"], Deferred[Results]]
"""Function that asks the controller for an election (None: all partitions); returns errors by partition, or a
``KafkaError``."""

PREFERRED = 0
TYPES = (PREFERRED, 1)

TEXTS = {
    ErrorCode.ELECTION_NOT_NEEDED: "The partition is led as it should be already.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred replica does not live or is not in sync.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica lives that could lead.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The partition does not exist.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted.",
    ErrorCode.REQUEST_TIMED_OUT: "The leader is chosen, but this broker did not receive it in time.",
}


class ElectLeaders:
    """Answers once this broker's own metadata has the new leaders, or the time is up."""

    def __init__(self, ask: AskElection, metadata: MetadataCache) -> None:
        self._ask = ask
        self._metadata = metadata

    def __call__(self, request: Request) -> None:
        answer_from(request, self._answer(request.body))

    async def _answer(self, body: Row) -> Row:
        election_type, wanted = body.get("election_type", PREFERRED), _partitions(body["topic_partitions"])
        if election_type not in TYPES:
            return _refusal(ErrorCode.INVALID_REQUEST, wanted)
        try:
            results = dict(await self._ask(election_type, wanted))
        except KafkaError as error:
            return _refusal(error.code, wanted)
        await self._until_known(results, election_type, body["timeout_ms"] / 1000)
        if wanted is None:
            # A request for all partitions means those that need an election.
            results = {p: error for p, error in results.items() if error is not ErrorCode.ELECTION_NOT_NEEDED}
        return {"throttle_time_ms": 0, "error_code": 0, "replica_election_results": _rows(results)}

    async def _until_known(
        self, results: dict[TopicPartition, ErrorCode], election_type: int, timeout_s: float
    ) -> None:
        elected = [partition for partition, error in results.items() if error is ErrorCode.NONE]

        def unknown() -> list[TopicPartition]:
            return [partition for partition in elected if not self._is_led(partition, election_type)]

        if elected and not await self._metadata.wait_until(lambda: not unknown(), max(timeout_s, 0.0)):
            results.update(dict.fromkeys(unknown(), ErrorCode.REQUEST_TIMED_OUT))

    def _is_led(self, partition: TopicPartition, election_type: int) -> bool:
        topic = self._metadata.topic(partition.topic)
        known = topic.partitions.get(partition.partition) if topic is not None else None
        if known is None:
            return True  # deleted in the meantime
        return known.leader == known.replicas[0] if election_type == PREFERRED else known.leader >= 0


def _partitions(topics: Iterable[Row] | None) -> list[TopicPartition] | None:
    if topics is None:
        return None
    wanted = (TopicPartition(row["topic"], partition) for row in topics for partition in row["partitions"])
    return list(dict.fromkeys(wanted))


def _refusal(error: ErrorCode, wanted: list[TopicPartition] | None) -> Row:
    # Version 0 has no top-level error, so each partition carries it.
    results = dict.fromkeys(wanted or (), error)
    return {"throttle_time_ms": 0, "error_code": int(error), "replica_election_results": _rows(results)}


def _rows(results: Results) -> list[Row]:
    topics: dict[str, list[Row]] = {}
    for (topic, partition), error in results.items():
        text = TEXTS.get(error) if error is not ErrorCode.NONE else None
        row = {"partition_id": partition, "error_code": int(error), "error_message": text}
        topics.setdefault(topic, []).append(row)
    return [{"topic": topic, "partition_result": rows} for topic, rows in topics.items()]
