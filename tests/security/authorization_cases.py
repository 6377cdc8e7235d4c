"""Runs the authorization matrix against a kreplica or Apache Kafka broker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from authorization_client import CLOSED, NOTHING, PASSWORD, Connection, normalize
from authorization_entries import ABSENT, OTHER, OWN, Acl, Context, Entry, batch
from authorization_sequences import KEY_ID, run_sequences
from authorization_table import NOT_SERVED, TABLE

from kreplica.model import ZERO_UUID
from kreplica.security.acls.acl import CLUSTER_NAME, ResourceType
from kreplica.wire import messages
from tests.support.token_server import AUDIENCE, ISSUER, ec_key, jwk, key_set

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
ADMIN, UNPRIVILEGED = "admin", "unprivileged"
DEADLINE_S = 60
PREFIXED, LITERAL, ALLOW = 4, 3, 3

UNENCRYPTED, UNAUTHENTICATED, REJECTED = "plaintext on a TLS listener", "not authenticated", "wrong password"

Versions = Mapping[str, tuple[int, int]]
"""Versions to try, by API key as text."""


class Case(NamedTuple):
    """A request of a client.

    :param user: None for a client that does not authenticate or fails to.
    """

    entry: Entry
    version: int
    identity: str
    user: str | None

    @property
    def name(self) -> str:
        return f"{self.entry.name}, version {self.version}: {self.identity}"

    @property
    def suffix(self) -> str:
        return f"{TABLE.index(self.entry)}-{self.version}-{self.identity}".replace(" ", "-").replace(",", "")


class Identity(NamedTuple):
    """A client for an entry.

    :param acls: ACLs of the client; None for a user without ACLs, or with all permissions.
    """

    name: str
    user: str | None
    acls: tuple[Acl, ...] | None = None


def identities(entry: Entry) -> Iterator[Identity]:
    """Iterate over the authenticated clients for an entry."""
    yield Identity("no ACL", UNPRIVILEGED)
    number = TABLE.index(entry)
    for index, way in enumerate(entry.ways):
        if way:
            yield Identity(f"only {', '.join(map(str, way))}", f"u{number}w{index}", way)
    for index, missing in enumerate(entry.ways[0] if entry.ways and len(entry.ways[0]) > 1 else ()):
        rest = tuple(each for each in entry.ways[0] if each != missing)
        yield Identity(f"all except {missing}", f"u{number}m{index}", rest)
    yield Identity("super user", ADMIN)


def cases(versions: Versions) -> Iterator[Case]:
    """Iterate over all cases."""
    for entry in TABLE:
        lowest, highest = versions[str(entry.api.key)]
        lowest, highest = max(lowest, entry.first), min(highest, entry.last)
        tried = sorted({lowest, highest, *(each for each in entry.versions if lowest <= each <= highest)})
        for identity in (UNENCRYPTED, UNAUTHENTICATED, REJECTED):
            yield Case(entry, highest, identity, None)
        for version in tried:
            for each in identities(entry):
                yield Case(entry, version, each.name, each.user)


def properties(certificates: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """Return settings for a broker, which are valid for both kreplica and Apache Kafka."""
    keys = certificates / "keys.json"
    keys.write_bytes(key_set(jwk(ec_key(1), KEY_ID)))
    users = {each.user for entry in TABLE for each in identities(entry)}
    options = " ".join(f'user_{user}="{PASSWORD}"' for user in sorted(filter(None, users)))
    return {
        "broker.id": "1",
        "listeners": f"LOCAL://127.0.0.1:{ports['LOCAL']},TLS://127.0.0.1:{ports['TLS']}",
        "listener.security.protocol.map": "LOCAL:SASL_PLAINTEXT,TLS:SSL",
        "inter.broker.listener.name": "LOCAL",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "listener.name.local.oauthbearer.sasl.jaas.config": f"{OAUTH_PACKAGE}.OAuthBearerLoginModule required;",
        "listener.name.local.oauthbearer.sasl.server.callback.handler.class": (
            f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.local.plain.sasl.jaas.config": (
            f'{PLAIN_LOGIN} required username="{ADMIN}" password="{PASSWORD}" {options};'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{certificates}/broker.pem",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN}",
        "delegation.token.secret.key": "planted-token-key",
        "connection.failed.authentication.delay.ms": "0",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
    }


class Matrix:
    """Runs the cases against one broker; blocking.

    :param ports: ports by listener.
    :param certificates: directory with the key store of the listener TLS.
    """

    def __init__(self, ports: Mapping[str, int], versions: Versions, certificates: Path) -> None:
        self._ports = ports
        self._key_store = f"{certificates}/broker.pem"
        self._cases = list(cases(versions))
        self._topic_ids: dict[str, UUID] = {}

    def run(self) -> dict[str, Any]:
        """Prepare the broker; return the answers by name of the case."""
        self._prepare()
        answers = {case.name: self._answer(case) for case in self._cases}
        answers |= run_sequences(lambda: Connection(self._ports["LOCAL"]))
        return answers | {f"API {key}: super user": self._send_unserved(key) for key in NOT_SERVED}

    def _connect(self, user: str | None) -> Connection:
        connection = Connection(self._ports["LOCAL"])
        if user is not None:
            assert connection.authenticate(user) == 0
        return connection

    def _answer(self, case: Case) -> Any:
        entry, version = case.entry, case.version
        body = entry.body(Context(version, case.suffix, self._topic_ids, self._key_store))
        connection = Connection(self._ports["TLS"]) if case.identity == UNENCRYPTED else self._connect(case.user)
        try:
            rejection = connection.authenticate(UNPRIVILEGED, "wrong") if case.identity == REJECTED else 0
            response = self._response(connection, case, body)
        finally:
            connection.close()
        if rejection:
            assert response is None
            return {"error_code": rejection}
        if response == {}:
            return NOTHING
        return CLOSED if response is None else normalize(response, only_shared=entry.only_shared)

    def _response(self, connection: Connection, case: Case, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the response; None if the connection was closed, an empty dict if there is no response."""
        entry = case.entry
        try:
            connection.send(entry.api, case.version, body)
            if entry.is_silent:
                return {} if connection.is_silent() else None
            return connection.receive(entry.api, case.version)
        except (BrokenPipeError, ConnectionResetError):
            return None

    def _send_unserved(self, key: int) -> Any:
        connection = self._connect(ADMIN)
        connection.send_header(key, 0, 1)
        frame = connection._read_frame()
        connection.close()
        return CLOSED if frame is None else "a response"

    # --- preparation -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        admin = self._connect(ADMIN)
        resources: dict[str, list[str]] = {"topic": [OWN, OTHER], "group": [OWN, OTHER]}
        for case in self._cases:
            if case.entry.resource_type:
                resources[case.entry.resource_type] += Context(case.version, case.suffix, {}).names
        self._create_topics(admin, resources["topic"])
        self._produce(admin)
        for key_type in (0, 1):
            _until_done(admin, messages.FIND_COORDINATOR, 2, {"key": OWN, "key_type": key_type})
        for name in resources["group"]:
            self._commit(admin, name)
        for name in (OWN, OTHER):
            body = {"transactional_id": name, "transaction_timeout_ms": 1000}
            _until_done(admin, messages.INIT_PRODUCER_ID, 1, body)
        self._create_acls(admin)
        admin.close()

    def _create_topics(self, admin: Connection, names: list[str]) -> None:
        topics = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in names
        ]
        created = admin.request(messages.CREATE_TOPICS, 4, {"topics": topics, "timeout_ms": 30_000})
        assert {row["error_code"] for row in created["topics"]} == {0}
        rows = [{"name": name, "topic_id": ZERO_UUID} for name in names]
        body = {"topics": rows, "allow_auto_topic_creation": False}
        end = time.monotonic() + DEADLINE_S
        while True:
            found = admin.request(messages.METADATA, 12, body)["topics"]
            if not any(row["error_code"] or row["partitions"][0]["error_code"] for row in found):
                break
            assert time.monotonic() < end, "a topic has no leader"
        self._topic_ids = {row["name"]: row["topic_id"] for row in found}

    def _produce(self, admin: Connection) -> None:
        data = [{"index": 0, "records": batch()}]
        topics = [{"name": name, "partition_data": data} for name in (OWN, OTHER)]
        body = {"acks": 1, "timeout_ms": 5000, "topic_data": topics}
        produced = admin.request(messages.PRODUCE, 7, body)
        assert not any(row["partition_responses"][0]["error_code"] for row in produced["responses"])

    def _commit(self, admin: Connection, group: str) -> None:
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        topics = [{"name": name, "partitions": partitions} for name in (OWN, OTHER)]
        body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        end = time.monotonic() + DEADLINE_S
        while True:
            committed = admin.request(messages.OFFSET_COMMIT, 7, body)["topics"]
            if not any(row["partitions"][0]["error_code"] for row in committed):
                return
            assert time.monotonic() < end, committed

    def _create_acls(self, admin: Connection) -> None:
        rows = [_acl_row(each.user, acl) for entry in TABLE for each in identities(entry) for acl in each.acls or ()]
        created = admin.request(messages.CREATE_ACLS, 2, {"creations": rows})
        assert {row["error_code"] for row in created["results"]} == {0}


def _acl_row(user: str | None, acl: Acl) -> dict[str, Any]:
    is_cluster = acl.type is ResourceType.CLUSTER
    name = f"User:{OWN}" if acl.type is ResourceType.USER else OWN
    return {
        "resource_type": int(acl.type),
        "resource_name": CLUSTER_NAME if is_cluster else name,
        "resource_pattern_type": LITERAL if is_cluster else PREFIXED,
        "principal": f"User:{user}",
        "host": "*",
        "operation": int(acl.operation),
        "permission_type": ALLOW,
    }


def _until_done(admin: Connection, api: Any, version: int, body: dict[str, Any]) -> None:
    end = time.monotonic() + DEADLINE_S
    while (code := admin.request(api, version, body)["error_code"]) != 0:
        assert time.monotonic() < end, f"{api.name}: error {code}"


assert ABSENT.startswith(OWN)
