"""Clients with telemetry: their subscriptions, the limits of their pushes, and their last metrics in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from kreplica.cluster.uuids import uuid_text
from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.settings.client_metrics import ClientAttributes, ClientMetrics, Subscribed
from kreplica.model import ZERO_UUID
from kreplica.server.protocol.client_names import CLIENT_NAME_LENGTH_MAX
from kreplica.server.protocol.connection import Connection
from kreplica.wire.compression import Codec

CLIENTS_MAX = 10_000
"""Maximum number of clients; the one whose last request is the oldest is forgotten."""

KEPT_INTERVALS = 3
"""Number of push intervals without a request after which a client is forgotten, as in Kafka."""

KEPT_S_MIN = 300.0
"""Minimum time for which a client is remembered, so that operators see the last metrics of a terminated client."""

UNKNOWN = "unknown"
"""Software name of a client that does not send one, as in Kafka."""

COMPRESSION_TYPES: Sequence[int] = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""Accepted compression types, in order of preference; clients may also send uncompressed metrics."""

NEVER = float("-inf")

_ENABLES_EARLY_GET = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Errors after which a client may request its subscription before the interval is over."""


class Push(NamedTuple):
    """Metrics that a client pushed, compressed.

    :param metrics: number of metrics.
    :param at_ms: time of the push in milliseconds since 1970.
    """

    codec: int
    data: bytes
    metrics: int
    at_ms: int


class TelemetryClient:
    """One client, identified by its client instance ID.

    :ivar attributes: names and address, from its last request.
    :ivar user: principal of its last request.
    :ivar last_s: reactor time of its last request.
    :ivar last_error: error of its last response.
    :ivar is_terminating: the client has sent its last metrics.
    :ivar push: its last metrics; None if there are none, or if newer metrics of other clients displaced them.
    :ivar pushes: number of pushes with metrics.
    """

    __slots__ = (
        "_has_new_subscription",
        "_subscriptions_version",
        "attributes",
        "instance_id",
        "is_terminating",
        "last_error",
        "last_get_s",
        "last_push_s",
        "last_s",
        "push",
        "pushes",
        "subscribed",
        "subscription_id",
        "user",
    )

    def __init__(self, instance_id: UUID) -> None:
        self.instance_id = instance_id
        self.attributes = ClientAttributes("", "", "", "", "", "")
        self.user = ""
        self.subscribed = Subscribed((), (), 0)
        self.subscription_id = 0
        self.last_s = self.last_get_s = self.last_push_s = NEVER
        self.last_error = ErrorCode.NONE
        self.is_terminating = False
        self.push: Push | None = None
        self.pushes = 0
        self._subscriptions_version = -1
        self._has_new_subscription = False

    @property
    def interval_s(self) -> float:
        """The push interval in seconds."""
        return self.subscribed.interval_ms / 1000

    def update(self, attributes: ClientAttributes, subscriptions: ClientMetrics) -> None:
        """Set the attributes; update the subscription if the attributes or the configured subscriptions changed."""
        if attributes == self.attributes and subscriptions.version == self._subscriptions_version:
            return
        self.attributes = attributes
        self._subscriptions_version = subscriptions.version
        self.subscribed = subscriptions.select(attributes)
        text = f"{attributes.client_instance_id} {self.subscribed.interval_ms} {' '.join(self.subscribed.metrics)}"
        self.subscription_id = crc32(text.encode()) - 2**31

    def begin_get(self, now_s: float) -> None:
        """Check that the client may request its subscription.

        :raise KafkaError: THROTTLING_QUOTA_EXCEEDED.
        """
        is_early = now_s - max(self.last_get_s, self.last_push_s) < self.interval_s
        if is_early and self.last_error not in _ENABLES_EARLY_GET:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval has not elapsed")
        self.last_get_s = now_s
        self.last_error = ErrorCode.NONE
        self._has_new_subscription = True

    def begin_push(self, now_s: float, *, terminating: bool) -> None:
        """Check that the client may push.

        :raise KafkaError: INVALID_REQUEST after its last push; THROTTLING_QUOTA_EXCEEDED before the interval is over.
        """
        if self.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has already announced its termination")
        may_push = self._has_new_subscription or now_s - self.last_push_s >= self.interval_s
        if not may_push and not terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval has not elapsed")
        self.last_push_s = now_s
        self._has_new_subscription = False


class TelemetryClients:
    """The clients of one broker; owned by the broker.

    :param seconds: clock of the reactor.
    :param new_id: returns a new client instance ID.
    :param push_bytes_max: ``telemetry.max.bytes``.
    :param kept_bytes_max: maximum size of the last metrics of all clients, compressed.
    :ivar accepted: number of accepted pushes with metrics.
    :ivar rejected: number of rejected pushes.
    :ivar kept_bytes: size of the last metrics of all clients.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        subscriptions: ClientMetrics,
        new_id: Callable[[], UUID],
        push_bytes_max: int,
        kept_bytes_max: int,
    ) -> None:
        self.push_bytes_max = push_bytes_max
        self.accepted = 0
        self.rejected = 0
        self.kept_bytes = 0
        self._seconds = seconds
        self._subscriptions = subscriptions
        self._new_id = new_id
        self._kept_bytes_max = kept_bytes_max
        self._clients: OrderedDict[UUID, TelemetryClient] = OrderedDict()
        """Clients by client instance ID, those with the oldest request first."""
        self._with_push: dict[UUID, TelemetryClient] = {}
        """Clients whose last metrics are kept, those with the oldest metrics first."""

    def __len__(self) -> int:
        """Return the number of clients."""
        self._forget_silent()
        return len(self._clients)

    def __iter__(self) -> Iterator[TelemetryClient]:
        """Iterate over the clients, those with the oldest request first."""
        self._forget_silent()
        now_s = self._seconds()
        return iter([client for client in self._clients.values() if not _is_silent(client, now_s)])

    def find(self, instance_id: UUID) -> TelemetryClient | None:
        """Return a client; None if it is unknown."""
        return self._clients.get(instance_id)

    def subscribe(self, instance_id: UUID, connection: Connection, client_id: str | None) -> TelemetryClient:
        """Return the client of a GetTelemetrySubscriptions request with its subscription.

        :param instance_id: zero for a new client.
        :raise KafkaError: THROTTLING_QUOTA_EXCEEDED.
        """
        client = self._client(instance_id if instance_id != ZERO_UUID else self._new_id(), connection, client_id)
        client.begin_get(self._seconds())
        return client

    def begin_push(
        self,
        instance_id: UUID,
        connection: Connection,
        client_id: str | None,
        *,
        subscription_id: int,
        codec: int,
        size: int,
        terminating: bool,
    ) -> TelemetryClient:
        """Return the client of a PushTelemetry request, if it may push.

        :raise KafkaError: INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID,
            UNSUPPORTED_COMPRESSION_TYPE or TELEMETRY_TOO_LARGE, in this order.
        """
        if instance_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client instance ID is zero")
        client = self._client(instance_id, connection, client_id)
        try:
            client.begin_push(self._seconds(), terminating=terminating)
            if subscription_id != client.subscription_id:
                raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscription has changed")
            if codec not in {*Codec}:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {codec}")
            if size > self.push_bytes_max:
                text = f"{size} bytes are more than telemetry.max.bytes={self.push_bytes_max}"
                raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, text)
        except KafkaError as error:
            client.last_error = error.code
            raise
        client.last_error = ErrorCode.NONE
        client.is_terminating = terminating
        return client

    def keep(self, client: TelemetryClient, push: Push) -> None:
        """Store the metrics of a client in place of its earlier ones; evict other clients' oldest ones if needed."""
        self.accepted += 1
        if self._clients.get(client.instance_id) is not client:
            return  # forgotten in the meantime
        self._drop_push(client)
        client.push = push
        client.pushes += 1
        self._with_push[client.instance_id] = client
        self.kept_bytes += len(push.data)
        while self.kept_bytes > self._kept_bytes_max:
            self._drop_push(next(iter(self._with_push.values())))

    def _client(self, instance_id: UUID, connection: Connection, client_id: str | None) -> TelemetryClient:
        """Return the client of a request; create it if it is unknown."""
        self._forget_silent()
        client = self._clients.get(instance_id)
        if client is None:
            while len(self._clients) >= CLIENTS_MAX:
                self._forget(next(iter(self._clients)))
            client = self._clients[instance_id] = TelemetryClient(instance_id)
        self._clients.move_to_end(instance_id)
        names = connection.names
        text = uuid_text(instance_id)
        host, _, port = connection.peer.rpartition(":")
        client.update(
            ClientAttributes(
                text,
                (client_id or "")[:CLIENT_NAME_LENGTH_MAX],
                names.software_name or UNKNOWN,
                names.software_version or UNKNOWN,
                host.strip("[]"),
                port,
            ),
            self._subscriptions,
        )
        client.user = connection.user
        client.last_s = self._seconds()
        connection.names = names._replace(client_instance_id=text)
        return client

    def _forget_silent(self) -> None:
        now_s = self._seconds()
        while self._clients and _is_silent(next(iter(self._clients.values())), now_s):
            self._forget(next(iter(self._clients)))

    def _forget(self, instance_id: UUID) -> None:
        self._drop_push(self._clients.pop(instance_id))

    def _drop_push(self, client: TelemetryClient) -> None:
        if client.push is not None:
            self.kept_bytes -= len(client.push.data)
            client.push = None
            del self._with_push[client.instance_id]


def _is_silent(client: TelemetryClient, now_s: float) -> bool:
    return now_s - client.last_s > max(KEPT_INTERVALS * client.interval_s, KEPT_S_MIN)
