"""OffsetCommit (key 8): commits offsets of a group."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.coordination import ClusterView, Shards
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.offset_commits import Committer, commit, is_writable
from kreplica.groups.records import NO_TIME
from kreplica.groups.shard import GroupShard
from kreplica.runtime.slices import Steps
from kreplica.server.handlers.groups.join_group import client_host
from kreplica.server.handlers.groups.offset_rows import OffsetRows
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices
from kreplica.wire.batch_building import BatchBuilder

TIME_MS_MAX = 2**63 - 1


class OffsetCommit:
    """Responds once the offsets are committed to the log.

    :param metadata_characters_max: ``offset.metadata.max.bytes``.
    """

    def __init__(
        self,
        shards: Shards[GroupShard],
        view: ClusterView,
        wall_clock_ms: Callable[[], int],
        metadata_characters_max: int,
    ) -> None:
        self._shards = shards
        self._view = view
        self._wall_clock_ms = wall_clock_ms
        self._metadata_characters_max = metadata_characters_max

    def __call__(self, request: Request) -> None:
        respond_in_slices(request, self._read(request))

    def _read(self, request: Request) -> Steps[None]:
        """Read the offsets in slices, then commit all of them in one step."""
        body = request.body
        now_ms = self._wall_clock_ms()
        retention_ms = body.get("retention_time_ms", NO_TIME)
        expires_ms = NO_TIME if retention_ms == NO_TIME else min(max(now_ms + retention_ms, 0), TIME_MS_MAX)
        rows = OffsetRows(self._view, self._metadata_characters_max, now_ms, expires_ms)
        yield from rows.read(body["topics"])
        try:
            prepared = yield from rows.prepare(self._shards, body["group_id"])
        except KafkaError:
            rows.fail(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            request.respond({"throttle_time_ms": 0, "topics": rows.topics})
        else:
            self._commit(request, rows, prepared)

    def _commit(self, request: Request, rows: OffsetRows, prepared: BatchBuilder | None) -> None:
        body = request.body
        group_id = body["group_id"]

        def respond(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                rows.fail(code)
            request.respond({"throttle_time_ms": 0, "topics": rows.topics})

        if not rows.values:
            respond(ErrorCode.NONE)
            return
        committer = Committer(
            group_id,
            body["member_id"],
            body.get("group_instance_id"),
            body["generation_id_or_member_epoch"],
            request.version,
            client_host(request),
        )
        try:
            if not is_writable(group_id):
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            commit(self._shards.shard_of(group_id), committer, rows.values, respond, prepared)
        except KafkaError as error:
            respond(error.code)
