"""The way into a cluster that may be anybody's: its brokers, and a topic made there for the time of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kreplica.client.connection import connect
from kreplica.client.errors import ClientError, ConnectionFailed, MalformedAnswer, UnsupportedVersion
from kreplica.errors import ErrorCode, KafkaError, KreplicaError
from kreplica.runtime import Reactor
from kreplica.testing.clients.leader_client import CONNECT_TIMEOUT_S
from kreplica.testing.clients.wire_client import WireClient, name_of, sleep
from kreplica.testing.verification.options import ANSWER_TIMEOUT_S, Address
from kreplica.wire import messages

CLIENT_ID = "kreplica-verify"
METADATA_BY_NAME_MAX = 9
READY_S_MAX = 30.0
RETRY_S = 0.5


class CouldNotRun(KreplicaError):
    """There is nothing to be said of the cluster, because the run did not come about; the text says why, in a line."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as one of its brokers tells it.

    :param addresses: by broker id, where clients are to come.
    """

    addresses: dict[int, Address]
    controller_id: int


class ClusterAccess:
    """Asks brokers as an operator would, and says in one line what is in the way.

    :param bootstrap: those that are asked first.
    """

    def __init__(self, reactor: Reactor, bootstrap: Sequence[Address]) -> None:
        self._reactor = reactor
        self._bootstrap = bootstrap

    async def find(self) -> Cluster:
        """The cluster, of which at least one broker can be reached where it says that it is.

        :raise CouldNotRun: there is none.
        """
        reasons = []
        for address in self._bootstrap:
            client = self._client(address)
            try:
                cluster = await _ask(client)
            except (ClientError, KafkaError) as error:
                reasons.append(_why(address, error, connected=not isinstance(error, ConnectionFailed)))
            else:
                await self._reach_any(address, cluster)
                return cluster
            finally:
                await client.close()
        raise CouldNotRun("; ".join(reasons))

    async def _reach_any(self, asked: Address, cluster: Cluster) -> None:
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
            f"{_named(asked)} answers, but no broker is where it sends clients (see advertised.listeners): "
            + ("; ".join(reasons) or "it knows of no broker")
        )

    async def make_topic(
        self, cluster: Cluster, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        """Make a topic, and wait until each of its partitions is led.

        :raise CouldNotRun: it cannot be made.
        """
        await self._by_controller(
            cluster,
            lambda client: client.create_topic(name, partitions, configs, replication_factor=replication_factor),
            f"the topic {name} cannot be made",
            ErrorCode.TOPIC_ALREADY_EXISTS,
        )
        deadline_s = self._reactor.seconds() + READY_S_MAX
        unled: object = "nobody was asked"
        while self._reactor.seconds() < deadline_s:
            unled = await self._unled(cluster, name, partitions)
            if not unled:
                return
            await sleep(self._reactor, RETRY_S)
        raise CouldNotRun(f"the topic {name} was made, but in {READY_S_MAX:g} s not every partition was led: {unled}")

    async def remove_topic(self, cluster: Cluster, name: str) -> None:
        """Remove a topic.

        :raise CouldNotRun: it cannot be removed.
        """
        await self._by_controller(
            cluster,
            lambda client: client.delete_topic(name),
            f"the topic {name} cannot be removed",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )

    async def _by_controller(
        self, cluster: Cluster, act: Callable[[WireClient], Awaitable[None]], failing: str, done: ErrorCode
    ) -> None:
        """Have the controller do something, asking again while it may do better, or may be another.

        :param done: what a second question is answered where the first had its effect though it failed.
        """
        deadline_s = self._reactor.seconds() + READY_S_MAX
        asked = 0
        while True:
            address = self._next(cluster, asked)
            client = self._client(address)
            try:
                await act(client)
                return
            except (ClientError, KafkaError) as error:
                if asked and isinstance(error, KafkaError) and error.code is done:
                    return
                if not _may_pass(error) or self._reactor.seconds() > deadline_s:
                    raise CouldNotRun(f"{failing}: {_text(error)}") from error
            finally:
                await client.close()
            asked += 1
            await sleep(self._reactor, RETRY_S)
            cluster = await self._again(cluster)

    def _next(self, cluster: Cluster, asked: int) -> Address:
        """The controller's address, then the others' in turn: not every cluster says truly who it is."""
        ids = sorted(cluster.addresses, key=lambda broker_id: broker_id != cluster.controller_id)
        return cluster.addresses[ids[asked % len(ids)]]

    async def _again(self, cluster: Cluster) -> Cluster:
        for address in [*cluster.addresses.values(), *self._bootstrap]:
            client = self._client(address)
            try:
                found = await _ask(client)
            except (ClientError, KafkaError):
                continue
            finally:
                await client.close()
            if found.addresses:  # a broker that has just started may know of none
                return found
        return cluster

    async def _unled(self, cluster: Cluster, topic: str, partitions: int) -> object:
        """What is said of partitions that nobody leads, or why nothing is; empty where all are led."""
        last: object = "nobody answers"
        for address in cluster.addresses.values():
            client = self._client(address)
            try:
                body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
                answer = await client.request(messages.METADATA, body, at_most=METADATA_BY_NAME_MAX)
            except (ClientError, KafkaError) as error:
                last = error
                continue
            finally:
                await client.close()
            rows = {row["partition_index"]: row for row in answer["topics"][0]["partitions"]}
            return [index for index in range(partitions) if index not in rows or rows[index]["leader_id"] < 0]
        return last

    def _client(self, address: Address) -> WireClient:
        return WireClient(self._reactor, *address, client_id=CLIENT_ID, answer_timeout_s=ANSWER_TIMEOUT_S)


async def _ask(client: WireClient) -> Cluster:
    body = {"topics": [], "allow_auto_topic_creation": False}
    answer = await client.request(messages.METADATA, body, at_most=METADATA_BY_NAME_MAX)
    addresses = {row["node_id"]: (row["host"], row["port"]) for row in answer["brokers"]}
    return Cluster(addresses, answer["controller_id"])


def _may_pass(error: ClientError | KafkaError) -> bool:
    return error.code.retriable if isinstance(error, KafkaError) else error.retriable


def _named(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _why(address: Address, error: ClientError | KafkaError, *, connected: bool) -> str:
    if not connected:
        return f"no connection to {error}"
    if isinstance(error, UnsupportedVersion):
        return f"{_named(address)} speaks no version that is known here: {error}"
    if isinstance(error, MalformedAnswer):
        return f"{_named(address)} does not speak the Kafka protocol: {error}"
    return (
        f"{_named(address)} takes connections, but does not answer as a Kafka broker without TLS and authentication "
        f"would: {_text(error)}"
    )


def _text(error: ClientError | KafkaError) -> str:
    return str(error) if isinstance(error, KafkaError) else f"{name_of(error)}: {error}"
