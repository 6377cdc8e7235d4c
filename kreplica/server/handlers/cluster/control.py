"""The controller's commands: LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from kreplica.errors import ErrorCode
from kreplica.membership import DynamicSettings
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.replication import ControlFence, Leadership, Partitions
from kreplica.runtime import Reactor
from kreplica.runtime.slices import Steps
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.control_admission import ControlAdmission
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices, respond_with_result

Row = dict[str, Any]

LEADERSHIPS_MAX = 4096
"""Maximum number of cached leaderships; partitions whose leaderships are equal share one object."""


def _fencing_error(fence: ControlFence, body: Row) -> ErrorCode:
    """Return the error if the controller or the broker's session changed while the command waited."""
    return fence.rejection(body["controller_epoch"], body["broker_epoch"])


class LeaderAndIsr:
    """Makes this broker leader or follower of partitions."""

    def __init__(
        self,
        reactor: Reactor,
        admission: ControlAdmission,
        fence: ControlFence,
        partitions: Partitions,
        settings: DynamicSettings,
        metadata: MetadataCache,
    ) -> None:
        self._reactor = reactor
        self._admission = admission
        self._fence = fence
        self._partitions = partitions
        self._settings = settings
        self._metadata = metadata

    def __call__(self, request: Request) -> None:
        self._admission.admit(request, partial(self._after_admission, request))

    def _after_admission(self, request: Request, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            request.respond(_leader_and_isr_response(error))
            return
        body = request.body
        respond_with_result(request, self._fence.in_order(lambda: self._execute(body)))

    async def _execute(self, body: Row) -> Row:
        # The settings of a new topic must be known before its logs are created.
        new = [topic["topic_name"] for topic in body["topic_states"] if self._is_new(topic)]
        await self._settings.read_new_topics(new)
        leaderships = await self._leaderships(body)
        error = _fencing_error(self._fence, body)
        if error is not ErrorCode.NONE:
            return _leader_and_isr_response(error)
        errors = await self._partitions.lead_and_follow(leaderships)
        self._metadata.recheck()  # a starting broker waits until every log has a role
        flat: list[Row] = []
        topics = []
        time_slice = TimeSlice(self._reactor)
        for topic in body["topic_states"]:
            name = topic["topic_name"]
            rows = []
            for key in topic["partition_states"]:
                rows.append({"topic_name": name, "partition_index": key.partition, "error_code": int(errors[key])})
                if time_slice.is_over:
                    await time_slice.next()
            flat += rows
            topics.append({"topic_id": topic.get("topic_id", ZERO_UUID), "partition_errors": rows})
        return _leader_and_isr_response(ErrorCode.NONE, topics, flat)

    async def _leaderships(self, body: Row) -> dict[TopicPartition, Leadership]:
        """Return the leaderships, and replace the rows of the partitions, which take 1 KB each, with their keys."""
        time_slice = TimeSlice(self._reactor)
        leaderships = {}
        for topic in body["topic_states"]:
            topic_id = topic.get("topic_id", ZERO_UUID)
            rows = topic["partition_states"]
            for number, row in enumerate(rows):
                rows[number] = key = TopicPartition(topic["topic_name"], row["partition_index"])
                leaderships[key] = _leadership(topic_id, row)
                if time_slice.is_over:
                    await time_slice.next()
        return leaderships

    def _is_new(self, topic: Row) -> bool:
        return not self._settings.knows(topic["topic_name"]) or any(row["is_new"] for row in topic["partition_states"])


def _leader_and_isr_response(error: ErrorCode, topics: Sequence[Row] = (), flat: Sequence[Row] = ()) -> Row:
    """Build the response.

    :param topics: rows by topic, for versions with topic IDs.
    :param flat: rows of all partitions, for older versions.
    """
    return {"error_code": int(error), "topics": topics, "partition_errors": flat}


@lru_cache(maxsize=LEADERSHIPS_MAX)
def _shared(leadership: Leadership) -> Leadership:
    """Return one object for equal values, because many partitions of a topic have equal leaderships."""
    return leadership


def _leadership(topic_id: UUID, row: Row) -> Leadership:
    leadership = Leadership(
        row["leader"],
        row["leader_epoch"],
        tuple(row["isr"]),
        tuple(row["replicas"]),
        row["partition_epoch"],
        row["controller_epoch"],
        topic_id,
        tuple(row.get("adding_replicas", ())),
        tuple(row.get("removing_replicas", ())),
        tuple(row.get("eligible_leader_replicas", ())),
        row.get("read_only", False),
        row["is_new"],
    )
    return _shared(leadership)


class StopReplica:
    """Stops replicas and deletes the files of some."""

    def __init__(
        self,
        reactor: Reactor,
        admission: ControlAdmission,
        fence: ControlFence,
        partitions: Partitions,
        metadata: MetadataCache,
    ) -> None:
        self._reactor = reactor
        self._admission = admission
        self._fence = fence
        self._partitions = partitions
        self._metadata = metadata

    def __call__(self, request: Request) -> None:
        self._admission.admit(request, partial(self._after_admission, request))

    def _after_admission(self, request: Request, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            request.respond({"error_code": int(error), "partition_errors": []})
            return
        body = request.body
        respond_with_result(request, self._fence.in_order(lambda: self._execute(body)))

    async def _execute(self, body: Row) -> Row:
        error = _fencing_error(self._fence, body)
        if error is not ErrorCode.NONE:
            return {"error_code": int(error), "partition_errors": []}
        errors: dict[TopicPartition, ErrorCode] = {}
        time_slice = TimeSlice(self._reactor)
        for topic in body["topic_states"]:
            for row in topic["partition_states"]:
                key = TopicPartition(topic["topic_name"], row["partition_index"])
                errors[key] = await self._partitions.stop_replica(
                    key, leader_epoch=row["leader_epoch"], delete=row["delete_partition"]
                )
                if time_slice.is_over:
                    await time_slice.next()
        # The controller may reuse the number of a deleted partition as soon as it receives this response.
        for key in await self._partitions.directories.sync_deletions():
            errors[key] = ErrorCode.KAFKA_STORAGE_ERROR
        rows = []
        for key, error in errors.items():
            rows.append({"topic_name": key.topic, "partition_index": key.partition, "error_code": int(error)})
            if time_slice.is_over:
                await time_slice.next()
        self._metadata.recheck()  # a starting broker waits until each log has a role or was deleted
        return {"error_code": 0, "partition_errors": rows}


class UpdateMetadata:
    """Updates the metadata that this broker serves to clients."""

    def __init__(
        self, admission: ControlAdmission, fence: ControlFence, metadata: MetadataCache, settings: DynamicSettings
    ) -> None:
        self._admission = admission
        self._fence = fence
        self._metadata = metadata
        self._settings = settings
        self._last: Row | None = None

    def __call__(self, request: Request) -> None:
        self._admission.admit(request, partial(self._after_admission, request))

    def _after_admission(self, request: Request, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            request.respond({"error_code": int(error)})
            return
        respond_in_slices(request, self._execute(request.body))

    def _execute(self, body: Row) -> Steps[Row]:
        """Apply the metadata.

        The controller sends its next request after the response, or resends this one on another connection.  A newer
        request supersedes this one.
        """
        self._last = body

        def is_valid() -> bool:
            return self._last is body and _fencing_error(self._fence, body) is ErrorCode.NONE

        removed_topics = yield from self._metadata.update_in_steps(body, is_valid)
        for topic in removed_topics:
            self._settings.forget(topic)
        if self._last is not body:
            return {"error_code": int(ErrorCode.STALE_CONTROLLER_EPOCH)}
        self._last = None
        return {"error_code": int(_fencing_error(self._fence, body))}
