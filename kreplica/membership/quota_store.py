"""Reads client quotas from ZooKeeper, watches for changes, and writes changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from urllib.parse import unquote

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.cluster.json_documents import dump
from kreplica.cluster.quotas import CLIENT_QUOTAS, CLIENTS, IP_QUOTAS, IPS, USERS, QuotaEntity
from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.settings.dynamic_settings import decode_settings
from kreplica.membership.znode_watch import Watcher, ZnodeWatch
from kreplica.membership.zookeeper_errors import translate_errors
from kreplica.runtime import Reactor
from kreplica.runtime.gather import gather
from kreplica.zookeeper import (
    BadVersion,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    ZooKeeperClient,
    read_all,
)

log = Logger()

CONFLICTS_MAX = 10
"""Maximum number of attempts for a change that conflicts with concurrent changes."""

LISTED_AT_ONCE = 64
"""Number of users whose client IDs are listed at a time."""

Quotas = Mapping[QuotaEntity, Mapping[str, float]]


class QuotaStore:
    """Keeps a broker's client quotas up to date; owned by the broker.

    :param on_replaced: called with all quotas after each read.
    """

    def __init__(self, reactor: Reactor, client: ZooKeeperClient, on_replaced: Callable[[Quotas], None]) -> None:
        self._client = client
        self._on_replaced = on_replaced
        self._handled: set[str] = set()
        self._is_read = False
        self.watch = ZnodeWatch(reactor, "the client quotas", self._read)

    def forget(self) -> None:
        """Make the next read a full one, because notifications may have been missed."""
        self._is_read = False

    async def _read(self, watcher: Watcher) -> None:
        """Read all quotas, unless all notifications since the last read are about other entities."""
        names = set(await self._client.get_children(znodes.CONFIG_CHANGES, watcher))
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in names - self._handled]
        if not self._is_read or await self._concern_quotas(paths):
            await self.refresh()
            self._is_read = True
        self._handled = names

    async def _concern_quotas(self, paths: list[str]) -> bool:
        for path, result in zip(paths, await read_all(self._client, paths), strict=True):
            if not isinstance(result, tuple):
                continue  # removed by another broker
            try:
                entity_type, _ = documents.decode_config_change(path, result[0])
            except znodes.ZnodeError:
                continue  # logged where the settings are read
            if entity_type in (USERS, CLIENTS, IPS):
                return True
        return False

    async def refresh(self) -> None:
        """Read all quotas from ZooKeeper and enforce them instead of the previous ones.

        :raise ZooKeeperError: they cannot be read.
        """
        users = await self._names("/config/users")
        entities = [QuotaEntity(user, None) for user in users]
        for begin in range(0, len(users), LISTED_AT_ONCE):
            batch = users[begin : begin + LISTED_AT_ONCE]
            client_ids = await gather([self._names(f"{QuotaEntity(user, None).path}/{CLIENTS}") for user in batch])
            for user, clients in zip(batch, client_ids, strict=True):
                entities += [QuotaEntity(user, client_id) for client_id in clients]
        entities += [QuotaEntity(None, client_id) for client_id in await self._names("/config/clients")]
        entities += [QuotaEntity(ip=ip) for ip in await self._names("/config/ips")]
        paths = [entity.path for entity in entities]
        quotas = {}
        for entity, path, result in zip(entities, paths, await read_all(self._client, paths), strict=True):
            if isinstance(result, tuple):
                names = CLIENT_QUOTAS if entity.ip is None else IP_QUOTAS
                values = decode_quotas(path, decode_settings(path, result[0]), names)
                if values:
                    quotas[entity] = values
        self._on_replaced(quotas)

    async def _names(self, path: str) -> list[str]:
        try:
            return [unquote(name) for name in sorted(await self._client.get_children(path))]
        except NoNode:
            return []

    async def change(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, dry_run: bool = False
    ) -> Sequence[Operation]:
        """Set or remove quotas of an entity, with a notification for all brokers.

        :param changes: new values by name; None to remove one, which need not exist.
        :param dry_run: True to write nothing.
        :return: the operations that wrote the change, or with ``dry_run`` that would write it.
        :raise KafkaError: ZooKeeper cannot be reached, or there were too many concurrent changes.
        """
        path = entity.path
        entity_path = path.removeprefix("/config/")
        notify = Create(
            f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}",
            dump({"version": 2, "entity_path": entity_path}),
            sequence=True,
        )
        for _ in range(CONFLICTS_MAX):
            version, config = await translate_errors(self._current(path))
            for name, value in changes.items():
                if value is None:
                    config.pop(name, None)
                else:
                    config[name] = format_quota(value)
            if version is None and not config:
                return ()
            data = documents.encode_config(config)
            write: Operation = Create(path, data) if version is None else SetData(path, data, version)
            if dry_run:
                return write, notify
            try:
                if version is None:
                    await translate_errors(self._create_parents(entity))
                await translate_errors(self._client.multi((write, notify)))
            except MultiFailed as failed:
                if not isinstance(failed.error, (BadVersion, NodeExists, NoNode)):
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failed)) from failed
                continue  # concurrent change: compute the quotas again
            await translate_errors(self.refresh())
            return write, notify
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"concurrent changes to {path} prevented this one; try again")

    async def _current(self, path: str) -> tuple[int | None, dict[str, str]]:
        try:
            data, stat = await self._client.get_data(path)
        except NoNode:
            return None, {}
        return stat.version, dict(decode_settings(path, data))

    async def _create_parents(self, entity: QuotaEntity) -> None:
        if entity.user is None or entity.client_id is None:
            parents = [entity.path.rpartition("/")[0]]
        else:
            user = QuotaEntity(entity.user, None).path
            parents = [user, f"{user}/{CLIENTS}"]
        for path in parents:
            try:
                await self._client.create(path)
            except NodeExists:
                pass


def decode_quotas(path: str, settings: Mapping[str, str], names: Iterable[str]) -> dict[str, float]:
    """Return the quotas among the settings of an entity; invalid values are logged and ignored."""
    quotas = {}
    for name in names:
        text = settings.get(name)
        if text is None:
            continue
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if isfinite(value) and value >= 0:
            quotas[name] = value
        else:
            log.error("{path}: {name}={text!r} is not a valid quota; it is ignored", path=path, name=name, text=text)
    return quotas


def format_quota(value: float) -> str:
    """Return a quota as text; whole numbers have no decimal point."""
    return str(int(value)) if float(value).is_integer() else repr(value)
