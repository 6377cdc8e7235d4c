"""Fetch (key 1): authorizes the client, updates its fetch session and starts the fetch (``delayed_fetch``)."""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication import READ_UNCOMMITTED, Partitions
from kreplica.runtime import Reactor
from kreplica.server.fetch.delayed_fetch import DelayedFetch, response_body
from kreplica.server.fetch.dependencies import FetchPermissions, Followers, Quota
from kreplica.server.fetch.partition_reads import CONSUMER, PartitionReads, Reader
from kreplica.server.fetch.sessions import NO_SESSION, FetchSessions
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import LARGE_BYTES, Request
from kreplica.server.protocol.responses import in_slices, run_handler

TOPIC_IDS_FROM = 13
"""First version that identifies topics by ID."""

ERROR_CODE_FROM = 7
"""First version whose responses have an error code at the top level."""

ANY_REPLICA_FROM = 11
"""First version in which consumers can fetch from followers (KIP-392)."""


class Fetch:
    """Handler of Fetch.

    :param bytes_max: ``fetch.max.bytes``, upper limit of the record bytes in one response.
    :param permissions: authorizes consumers and followers; None if everyone may read all topics.
    :param followers: verifies fetches of followers; None skips the verification.
    :param quota: limits consumers; None for no limits.
    """

    def __init__(
        self,
        reactor: Reactor,
        partitions: Partitions,
        metadata: MetadataCache,
        sessions: FetchSessions,
        bytes_max: int,
        reads: PartitionReads | None = None,
        permissions: FetchPermissions | None = None,
        followers: Followers | None = None,
        quota: Quota | None = None,
    ) -> None:
        self.quota = quota
        self.reactor = reactor
        self.partitions = partitions
        self.metadata = metadata
        self.bytes_max = bytes_max
        self.reads = reads or PartitionReads(reactor.seconds, partitions, metadata)
        self.sessions = sessions
        self._permissions = permissions
        self._followers = followers

    def __call__(self, request: Request) -> None:
        body = request.body
        reader = _reader(request)
        followers = self._followers
        if self._permissions is not None:
            reader = _authorize(reader, self._permissions, request)
        if (
            reader.is_follower
            and followers is not None
            and followers.epochs.get(reader.replica_id) != reader.broker_epoch
        ):
            run_handler(request, self._confirm(request, reader, followers))
            return
        if reader.is_follower:
            request.connection.mark_control()
        if request.size >= LARGE_BYTES:
            run_handler(request, self._begin_large(request, reader))
            return
        try:
            context = self.sessions.begin(
                body.get("session_id", 0),
                body.get("session_epoch", -1),
                body["topics"],
                body.get("forgotten_topics_data") or (),
                by_id=reader.by_id,
                now_s=self.reactor.seconds(),
                is_follower=reader.is_follower,
            )
        except KafkaError as error:
            request.respond(response_body(int(error.code), NO_SESSION, []))
            return
        DelayedFetch(self, request, reader, context).start()

    async def _begin_large(self, request: Request, reader: Reader) -> None:
        """Update the session from a large request in slices, then read the partitions."""
        body = request.body
        begin = self.sessions.begin_in_steps(
            body.get("session_id", 0),
            body.get("session_epoch", -1),
            body["topics"],
            body.get("forgotten_topics_data") or (),
            by_id=reader.by_id,
            now_s=self.reactor.seconds(),
            is_follower=reader.is_follower,
        )
        try:
            context = await in_slices(request, begin)
        except KafkaError as error:
            request.respond(response_body(int(error.code), NO_SESSION, []))
            return
        fetch = DelayedFetch(self, request, reader, context)
        fetch.is_large = True
        fetch.start()

    async def _confirm(self, request: Request, reader: Reader, followers: Followers) -> None:
        """Verify in ZooKeeper that the follower is registered, before its fetch can move a high watermark."""
        if await followers.confirm(reader.replica_id, reader.broker_epoch):
            self(request)
        elif request.version < ERROR_CODE_FROM:
            request.abort(f"broker {reader.replica_id} is not registered")
        else:
            request.respond(response_body(int(ErrorCode.STALE_BROKER_EPOCH), NO_SESSION, []))


def _reader(request: Request) -> Reader:
    body, version = request.body, request.version
    state = body.get("replica_state")
    replica_id = body["replica_id"] if state is None else state["replica_id"]
    return Reader(
        replica_id,
        replica_id >= 0,
        NO_BROKER_EPOCH if state is None else state["replica_epoch"],
        body.get("isolation_level", READ_UNCOMMITTED),
        version >= TOPIC_IDS_FROM,
        replica_id < CONSUMER or (replica_id == CONSUMER and version >= ANY_REPLICA_FROM),
        body.get("rack_id", ""),
    )


def _authorize(reader: Reader, permissions: FetchPermissions, request: Request) -> Reader:
    """Return the reader with the topics that it may read; a follower may read all topics or none."""
    if not reader.is_follower:
        return reader._replace(may_read=permissions.may_read(request))
    if permissions.may_replicate(request):
        return reader
    # The fetch of a rejected follower must not count for the ISR.
    return reader._replace(may_read=lambda _: False, is_follower=False)
