"""Access to the cluster: finds its brokers, and creates and deletes the topic of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kreplica.client.connection import connect
from kreplica.client.errors import ClientError, ConnectionFailed, MalformedResponse, UnsupportedVersion
from kreplica.errors import ErrorCode, KafkaError, KreplicaError
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.testing.clients.leader_client import CONNECT_TIMEOUT_S
from kreplica.testing.clients.wire_client import WireClient, name_of
from kreplica.testing.verification.options import REQUEST_TIMEOUT_S, Address
from kreplica.wire import messages

CLIENT_ID = "kreplica-verify"
METADATA_BY_NAME_MAX = 9
READY_S_MAX = 30.0
RETRY_S = 0.5


class CouldNotRun(KreplicaError):
    """The run was not possible, so nothing is known about the cluster; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster according to the metadata of one of its brokers.

    :param addresses: advertised addresses by broker ID.
    """

    addresses: dict[int, Address]
    controller_id: int


class ClusterAccess:
    """Sends administrative requests, and explains failures in one line.

    :param bootstrap: bootstrap servers, tried in order.
    """

    def __init__(self, reactor: Reactor, bootstrap: Sequence[Address]) -> None:
        self._reactor = reactor
        self._bootstrap = bootstrap

    async def find(self) -> Cluster:
        """Return the cluster, if at least one broker can be reached at its advertised address.

        :raise CouldNotRun: no broker can be reached.
        """
        reasons = []
        for address in self._bootstrap:
            client = self._client(address)
            try:
                cluster = await _metadata(client)
            except (ClientError, KafkaError) as error:
                reasons.append(_reason(address, error))
            else:
                await self._reach_any(address, cluster)
                return cluster
            finally:
                await client.close()
        raise CouldNotRun("; ".join(reasons))

    async def _reach_any(self, bootstrap: Address, cluster: Cluster) -> None:
        reasons = []
        for broker_id, (host, port) in cluster.addresses.items():
            try:
                connection = await connect(
                    self._reactor, host, port, client_id=CLIENT_ID, connect_timeout_s=CONNECT_TIMEOUT_S
                )
            except ConnectionFailed as error:
                reasons.append(f"broker {broker_id} at {error}")
            else:
                await connection.close()
                return
        raise CouldNotRun(
            f"{_text_of_address(bootstrap)} responds, but no broker is reachable at its advertised address "
            "(see advertised.listeners): " + ("; ".join(reasons) or "the response contains no broker")
        )

    async def create_topic(
        self, cluster: Cluster, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        """Create a topic, and wait until each of its partitions has a leader.

        :raise CouldNotRun: the topic cannot be created, or has no leaders in time.
        """
        await self._request_controller(
            cluster,
            lambda client: client.create_topic(name, partitions, configs, replication_factor=replication_factor),
            f"cannot create the topic {name}",
            ErrorCode.TOPIC_ALREADY_EXISTS,
        )
        deadline_s = self._reactor.seconds() + READY_S_MAX
        leaderless: object = None
        while self._reactor.seconds() < deadline_s:
            leaderless = await self._leaderless(cluster, name, partitions)
            if not leaderless:
                return
            await pause(self._reactor, RETRY_S)
        raise CouldNotRun(
            f"the topic {name} was created, but has partitions without a leader after {READY_S_MAX:g} s: {leaderless}"
        )

    async def delete_topic(self, cluster: Cluster, name: str) -> None:
        """Delete a topic.

        :raise CouldNotRun: the topic cannot be deleted.
        """
        await self._request_controller(
            cluster,
            lambda client: client.delete_topic(name),
            f"cannot delete the topic {name}",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )

    async def _request_controller(
        self, cluster: Cluster, send: Callable[[WireClient], Awaitable[None]], failure: str, already_done: ErrorCode
    ) -> None:
        """Send a request to the controller, and retry it, also with other brokers.

        :param failure: start of the message of ``CouldNotRun``.
        :param already_done: error of a retry after an attempt that succeeded without a response.
        """
        deadline_s = self._reactor.seconds() + READY_S_MAX
        attempts = 0
        while True:
            client = self._client(self._address_for(cluster, attempts))
            try:
                await send(client)
                return
            except (ClientError, KafkaError) as error:
                if attempts and isinstance(error, KafkaError) and error.code is already_done:
                    return
                if not _is_retriable(error) or self._reactor.seconds() > deadline_s:
                    raise CouldNotRun(f"{failure}: {_text(error)}") from error
            finally:
                await client.close()
            attempts += 1
            await pause(self._reactor, RETRY_S)
            cluster = await self._refresh(cluster)

    def _address_for(self, cluster: Cluster, attempts: int) -> Address:
        """Return the controller's address, then those of other brokers: some clusters report a wrong controller."""
        ids = sorted(cluster.addresses, key=lambda broker_id: broker_id != cluster.controller_id)
        return cluster.addresses[ids[attempts % len(ids)]]

    async def _refresh(self, cluster: Cluster) -> Cluster:
        for address in [*cluster.addresses.values(), *self._bootstrap]:
            client = self._client(address)
            try:
                refreshed = await _metadata(client)
            except (ClientError, KafkaError):
                continue
            finally:
                await client.close()
            if refreshed.addresses:  # a broker that has just started may not know any broker
                return refreshed
        return cluster

    async def _leaderless(self, cluster: Cluster, topic: str, partitions: int) -> object:
        """Return the partitions without a leader, or the error if no broker responds; falsy if all have leaders."""
        last: object = "no broker responds"
        for address in cluster.addresses.values():
            client = self._client(address)
            try:
                body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
                response = await client.request(messages.METADATA, body, at_most=METADATA_BY_NAME_MAX)
            except (ClientError, KafkaError) as error:
                last = error
                continue
            finally:
                await client.close()
            rows = {row["partition_index"]: row for row in response["topics"][0]["partitions"]}
            return [index for index in range(partitions) if index not in rows or rows[index]["leader_id"] < 0]
        return last

    def _client(self, address: Address) -> WireClient:
        return WireClient(self._reactor, *address, client_id=CLIENT_ID, request_timeout_s=REQUEST_TIMEOUT_S)


async def _metadata(client: WireClient) -> Cluster:
    body = {"topics": [], "allow_auto_topic_creation": False}
    response = await client.request(messages.METADATA, body, at_most=METADATA_BY_NAME_MAX)
    addresses = {row["node_id"]: (row["host"], row["port"]) for row in response["brokers"]}
    return Cluster(addresses, response["controller_id"])


def _is_retriable(error: ClientError | KafkaError) -> bool:
    return error.code.retriable if isinstance(error, KafkaError) else error.retriable


def _text_of_address(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _reason(address: Address, error: ClientError | KafkaError) -> str:
    server = _text_of_address(address)
    if isinstance(error, ConnectionFailed):
        return f"no connection to {error}"
    if isinstance(error, UnsupportedVersion):
        return f"{server} supports no version that this client knows: {error}"
    if isinstance(error, MalformedResponse):
        return f"{server} does not speak the Kafka protocol: {error}"
    return f"{server} accepts connections, but not as a Kafka broker without TLS and authentication: " + (
        _text(error)
    )


def _text(error: ClientError | KafkaError) -> str:
    return str(error) if isinstance(error, KafkaError) else f"{name_of(error)}: {error}"
