"""All clients of a run that authenticate, with their users, ACLs and topics.

Writers send to a source topic; a group reads it; a copier copies it to a target topic in transactions. Other clients
exceed their permissions: one never authenticates again, one has no ACLs, one uses old passwords. At the end, all
permissions are restored; then each acknowledged record must be in the source, rejected records must not, the group must
have read all records, and the target must have one copy of each record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from twisted.internet.defer import Deferred

from kreplica.client.consumer import ConsumerOptions
from kreplica.client.group.options import GroupOptions
from kreplica.cluster.quotas import CLIENT_QUOTAS, QuotaEntity
from kreplica.cluster.znodes import DEFAULT_ENTITY
from kreplica.membership.quota_store import decode_quotas
from kreplica.membership.settings.dynamic_settings import decode_settings
from kreplica.model import TopicPartition
from kreplica.security.acls.acl import (
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kreplica.security.sasl.credentials import PasswordCredentials
from kreplica.security.sasl.scram import HASHES
from kreplica.service.composition.broker import Broker
from kreplica.testing.anomalies import report
from kreplica.testing.cluster.secured_listeners import ADMINISTRATOR, SECURED_PORT
from kreplica.testing.cluster.state import has_no_open_transaction, is_all_committed, is_in_sync
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.checks import check_copied, check_sent
from kreplica.testing.storms.applications.copier import CopyTask, LibraryCopier
from kreplica.testing.storms.applications.history import ApplicationHistory
from kreplica.testing.storms.applications.internal_topics import SESSION_TIMEOUT_S, make_internal_topics
from kreplica.testing.storms.applications.logs import committed_offsets, read_logs
from kreplica.testing.storms.applications.writer import Writer
from kreplica.testing.storms.cluster_run import ClusterRun
from kreplica.testing.storms.expected_state import RequestResult
from kreplica.testing.storms.security.access_check import AccessCheck
from kreplica.testing.storms.security.administrator import Administrator
from kreplica.testing.storms.security.group_reader import GroupReader
from kreplica.testing.storms.security.lazy_client import LazyClient
from kreplica.testing.storms.security.observed_connections import observed_endpoint
from kreplica.testing.storms.security.tracked import Source
from kreplica.testing.storms.security.users import User
from kreplica.wire.records import Record

SOURCE, TARGET, PREFIX = "secured-source", "secured-target", "secured"
READERS, COPIERS, TRANSACTIONAL_ID = "secured-readers", "secured-copiers", "secured-copier"
OPERATOR = "secured-clients"
STRANGER = "stranger"

LIFETIMES_MS = (2_000, 5_000, 10_000)
"""Lifetimes of authenticated sessions; most are shorter than a fault that changes a password."""

TRANSACTION_TIMEOUT_S = 5.0
REBALANCE_TIMEOUT_S, HEARTBEAT_S, AUTO_COMMIT_S = 6.0, 1.0, 1.0
WRITE_INTERVALS_S = (0.3, 1.0, 2.0)
PROTOCOLS = ("classic", "consumer")
CATCH_UP_S_MAX = 300.0
CHECK_INTERVAL_S = 0.5

_READ, _WRITE = AclOperation.READ, AclOperation.WRITE


def session_lifetime_ms(seed: int) -> int:
    """Draw ``connections.max.reauth.ms`` of the brokers."""
    return Random(f"{seed}/lifetime").choice(LIFETIMES_MS)


class SecuredClients:
    """Companion of a run with authenticated clients.

    :param configs: settings of the topics.
    :param applied_s_max: as for ``AccessCheck``.
    :ivar users: users with permissions, whose passwords change.
    :ivar grants: the ACLs that the clients need.
    :ivar quota_entities: entities that may have quotas.
    """

    def __init__(
        self, run: ClusterRun, replicas: int, configs: Mapping[str, str], applied_s_max: float | None
    ) -> None:
        self._run = run
        self._cluster = run.cluster
        self._random = random = Random(f"{run.seed}/security")
        self.administrator = Administrator(run.cluster)
        self._partitions = random.choice((1, 2))
        self.sources = [TopicPartition(SOURCE, number) for number in range(self._partitions)]
        self.targets = [TopicPartition(TARGET, number) for number in range(self._partitions)]
        self.history = ApplicationHistory(
            lambda: run.cluster.simulation.now_s, (READERS, COPIERS), lambda old, new: True, self._partitions
        )
        self.users = [self._user(name) for name in ("writer", "deputy", "reader", "copier", "lazy")]
        self._stranger = self._user(STRANGER)
        self._brokers = [(f"broker-{number}", SECURED_PORT) for number in run.cluster.brokers]
        self._received: dict[TopicPartition, dict[int, bytes]] = {key: {} for key in self.sources}
        self.grants = self._grants()
        self.patterns = self._patterns()
        self.quota_entities = self._quota_entities()
        self._make_topics(replicas, configs)
        self.access = AccessCheck(
            run.cluster,
            self.patterns,
            [*self.users, self._stranger],
            [_quotas_of(entity) for entity in self.quota_entities],
            applied_s_max,
        )
        run.invariants.further_checks.append(self.access.after_event)
        self._grant_everything()
        self._writers = [self._start(self._writer(user)) for user in self.users[:2]]
        self._members = [self._start(self._reader(index)) for index in range(2)]
        self._copiers = [self._start(self._copier())]
        self._lazy = self._lazy_clients()

    # --- preparation -------------------------------------------------------------------------------------------------

    def _user(self, name: str) -> User:
        return User(name, self._random.choice(list(HASHES)))

    def _grants(self) -> list[tuple[ResourcePattern, Acl]]:
        writer, deputy, reader, copier, lazy = (user.principal for user in self.users)
        source, target = (ResourcePattern(ResourceType.TOPIC, name) for name in (SOURCE, TARGET))
        readers, copiers = (ResourcePattern(ResourceType.GROUP, name) for name in (READERS, COPIERS))
        transactions = ResourcePattern(ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID)
        return [
            (source, _allow(writer, _WRITE)),
            (ResourcePattern(ResourceType.TOPIC, PREFIX, PatternType.PREFIXED), _allow(deputy, _WRITE)),
            (source, _allow(reader, _READ)),
            (readers, _allow(reader, _READ)),
            (source, _allow(copier, _READ)),
            (copiers, _allow(copier, _READ)),
            (target, _allow(copier, _WRITE)),
            (transactions, _allow(copier, _WRITE)),
            (source, _allow(lazy, _READ)),
            (source, _allow(lazy, _WRITE)),
        ]

    def _patterns(self) -> list[ResourcePattern]:
        patterns = {pattern: None for granted, _ in self.grants for pattern in self.patterns_over(granted)}
        return list(patterns)

    @staticmethod
    def patterns_over(pattern: ResourcePattern) -> list[ResourcePattern]:
        """Return patterns of each kind that cover a pattern."""
        prefixed = ResourcePattern(pattern.type, PREFIX, PatternType.PREFIXED)
        return [*dict.fromkeys((pattern, prefixed, ResourcePattern(pattern.type, WILDCARD)))]

    def _quota_entities(self) -> list[QuotaEntity]:
        user_entities = [QuotaEntity(user.name, None) for user in self.users]
        client_entities = [QuotaEntity(None, "producer-0"), QuotaEntity(None, "consumer-0")]
        defaults = [QuotaEntity("writer", DEFAULT_ENTITY), QuotaEntity(DEFAULT_ENTITY, None)]
        return [*user_entities, *client_entities, *defaults]

    def _make_topics(self, replicas: int, configs: Mapping[str, str]) -> None:
        run_until = self._cluster.run_until
        admin = self._cluster.client()
        self._internal = make_internal_topics(self._run, OPERATOR, admin, configs)
        for topic in (SOURCE, TARGET):
            run_until(admin.create_topic(topic, self._partitions, configs, replication_factor=replicas))
        run_until(admin.close())
        for key in (*self.sources, *self.targets):
            self._run.invariants.add(key, None)

    def _grant_everything(self) -> None:
        """Restore all permissions and passwords, and remove all quotas."""
        administrator, random = self.administrator, self._random
        for user in (*self.users, self._stranger):
            administrator.complete(partial(self._set_password, user))
            user.client_password = user.passwords[-1]
        for pattern, acl in self.grants:
            administrator.complete(partial(administrator.create_acl, random, pattern, acl))
        for pattern, acl in [key for key in administrator.acls if key[1].permission is Permission.DENY]:
            administrator.complete(partial(administrator.delete_acl, random, pattern, acl))
        for entity, name in list(administrator.quotas):
            administrator.complete(partial(administrator.set_quota, random, entity, name, None))

    def _set_password(self, user: User) -> Deferred[RequestResult]:
        _, done = self.administrator.set_password(self._random, user)
        return done

    # --- clients -----------------------------------------------------------------------------------------------------

    def _host(self, name: str) -> Host:
        return self._cluster.host(f"secured-{name}")

    @property
    def _bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._brokers)

    def _start(self, started: tuple[Application, User]) -> Application:
        application, user = started
        application.endpoint = observed_endpoint(user.credentials(application.random), self.access.completed)
        Deferred.fromCoroutine(application.run()).addErrback(self._run.record_failure)
        return application

    def _writer(self, user: User) -> tuple[Application, User]:
        host, options = self._host(user.name), {"delivery_timeout_s": self._random.choice((5.0, 20.0))}
        interval_s = self._random.choice(WRITE_INTERVALS_S)
        name = f"secured-{user.name}"
        writer = Writer(host, name, self._bootstrap, self.history, SOURCE, self._partitions, interval_s, options)
        return writer, user

    def _reader(self, index: int) -> tuple[Application, User]:
        name = f"reader-{index}"
        options = self._consumer_options(READERS, AUTO_COMMIT_S)
        return GroupReader(self._host(name), name, self._bootstrap, SOURCE, options, self._receive), self.users[2]

    def _copier(self) -> tuple[Application, User]:
        options = self._consumer_options(COPIERS, None)
        task = CopyTask(SOURCE, TARGET, self._brokers, TRANSACTIONAL_ID, TRANSACTION_TIMEOUT_S, options)
        groups, transactions = self.history.groups, self.history.transactions
        copier = LibraryCopier(
            self._host("copier"), "secured-copier", self._bootstrap, task, groups[COPIERS], transactions
        )
        return copier, self.users[3]

    def _consumer_options(self, group: str, auto_commit_s: float | None) -> ConsumerOptions:
        options = GroupOptions(
            group_id=group,
            protocol=self._random.choice(PROTOCOLS),
            session_timeout_s=SESSION_TIMEOUT_S,
            heartbeat_interval_s=HEARTBEAT_S,
            rebalance_timeout_s=REBALANCE_TIMEOUT_S,
        )
        return ConsumerOptions(group=options, auto_commit_s=auto_commit_s)

    def _receive(self, key: TopicPartition, offset: int, value: bytes) -> None:
        first_value = self._received[key].setdefault(offset, value)
        assert first_value == value, f"{key} had {first_value[:20]!r} at {offset}, and then {value[:20]!r}"

    def _lazy_clients(self) -> list[LazyClient]:
        lazy = self.users[4]
        old = self._random.choice(self.users).old_credentials
        choices: dict[str, Callable[[Random], Callable[[], PasswordCredentials]]] = {
            "lazy": lazy.credentials,
            STRANGER: self._stranger.credentials,
            "impostor": old,
        }
        clients = []
        for name, credentials in choices.items():
            host = self._host(name)
            endpoint = observed_endpoint(credentials(host.runtime.random), self.access.completed)
            clients.append(LazyClient(host, name, self._brokers, self.sources, endpoint, self.history))
        return clients

    # --- state for faults --------------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[TopicPartition]:
        return [*self.sources, *self.targets, *self._internal]

    @property
    def hosts(self) -> list[str]:
        applications = [application.host.name for application in (*self._writers, *self._members, *self._copiers)]
        return [ADMINISTRATOR, *applications, *(client.host.name for client in self._lazy)]

    # --- end of the run ----------------------------------------------------------------------------------------------

    def converge(self) -> None:
        run_until = self._cluster.run_until
        for key in self.keys:
            run_until(lambda key=key: is_in_sync(self._cluster, key), timeout_s=180.0)
        run_until(lambda: self.administrator.is_idle, timeout_s=120.0)
        self._check_expected_state()
        self._grant_everything()
        run_until(lambda: not self.access.lags(), timeout_s=30.0)
        self._wait_for_writers()
        for lazy in self._lazy:
            run_until(lazy.finish(), timeout_s=60.0)
        self._stop(self._writers)
        self._wait_until_committed(self.sources)
        logs = read_logs(self._cluster, OPERATOR, self.sources)
        for group in (READERS, COPIERS):
            self._wait_until_caught_up(group, logs)
        self._stop([*self._members, *self._copiers])
        self._wait_until_committed(self.targets)
        views = {
            read_committed: read_logs(self._cluster, OPERATOR, self.targets, read_committed=read_committed)
            for read_committed in (True, False)
        }
        for read_committed, view in views.items():
            for key, log in view.items():
                records = [(record.offset, record.value or b"") for record in log]
                reader = f"reader of {'committed' if read_committed else 'all'} records"
                self.history.transactions.received(key.partition, records, reader, read_committed=read_committed)
        self._check(logs, views[True])

    def _wait_for_writers(self) -> None:
        """Run until each writer has written a record after its permissions were restored."""
        for writer in self._writers:
            written = self._written_by(writer.name)
            self._cluster.run_until(lambda name=writer.name, w=written: self._written_by(name) > w, timeout_s=180.0)

    def _written_by(self, producer: str) -> int:
        sent = self.history.sent.values()
        return sum(record.producer == producer and record.written is not None for record in sent)

    def _wait_until_committed(self, partitions: list[TopicPartition]) -> None:
        for key in partitions:
            self._cluster.run_until(lambda key=key: is_all_committed(self._cluster, key), timeout_s=120.0)
            self._cluster.run_until(lambda key=key: has_no_open_transaction(self._cluster, key), timeout_s=120.0)

    def _wait_until_caught_up(self, group: str, logs: Mapping[TopicPartition, list[Record]]) -> None:
        ends = {key: log[-1].offset + 1 for key, log in logs.items() if log}
        until_s = self._cluster.simulation.now_s + CATCH_UP_S_MAX
        while (committed := committed_offsets(self._cluster, OPERATOR, group, list(ends))) != ends:
            assert self._cluster.simulation.now_s < until_s, f"group {group} has committed {committed}, not {ends}"
            self._cluster.run(CHECK_INTERVAL_S)

    def _stop(self, applications: list[Application]) -> None:
        for application in applications:
            application.finish()
        self._cluster.run_until(lambda: all(application.is_over for application in applications), timeout_s=180.0)

    def _check_expected_state(self) -> None:
        """Check that the confirmed changes are in ZooKeeper."""
        for user in self.users:
            passwords = list(self.administrator.passwords[user.name].values)
            password = user.password_of(self.access.credentials_of(user).get(user.mechanism))
            assert password in passwords, f"{user.name} has {user.label_of(password)}, expected {passwords}"
        for (pattern, acl), exists in self.administrator.acls.items():
            is_present = acl in self.access.acls_of(pattern)
            expected = list(exists.values)
            assert is_present in expected, f"{acl} of {pattern} exists: {is_present}, expected {expected}"

    def _check(
        self, logs: Mapping[TopicPartition, list[Record]], copies: Mapping[TopicPartition, list[Record]]
    ) -> None:
        assert not self.history.contradictions, "; ".join(self.history.contradictions)
        report(self.history.transactions.observations).check()
        check_sent(self.history.sent, logs)
        for key, log in logs.items():
            received = self._received[key]
            for record in log:
                value = record.value or b""
                assert not value.startswith(STRANGER.encode()), f"{key} has {value[:20]!r} of a user with no ACL"
                received_value = received.get(record.offset)
                assert received_value == value, (
                    f"the group received {received_value!r} of {key} at {record.offset}, not {value[:20]!r}"
                )
        for source, target in zip(self.sources, self.targets, strict=True):
            check_copied(logs[source], copies[target], target)


def _allow(principal: str, operation: AclOperation) -> Acl:
    return Acl(principal, WILDCARD, operation, Permission.ALLOW)


def _quotas_of(entity: QuotaEntity) -> Source:
    def decode(data: bytes | None) -> Mapping[str, float]:
        return decode_quotas(entity.path, decode_settings(entity.path, data), CLIENT_QUOTAS) if data else {}

    def reader(broker: Broker) -> Callable[[], Mapping[str, float]]:
        quotas = broker.quotas
        return lambda: quotas.entries.get(entity, {})

    return Source(f"the quotas in {entity.path}", entity.path, decode, reader)
