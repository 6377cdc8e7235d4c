"""Reads ACLs from ZooKeeper, watches for changes, and writes changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.znode_watch import Watcher, ZnodeWatch
from kreplica.membership.zookeeper_errors import translate_errors
from kreplica.runtime import Runtime
from kreplica.security.acls.acl import DENY_ALL, Acl, AclFilter, PatternType, ResourcePattern
from kreplica.security.acls.authorizer import AclAuthorizer
from kreplica.security.acls.rules import AclRules
from kreplica.security.acls.znodes import (
    CHANGE_PREFIX,
    CHANGES,
    PATHS,
    ROOTS,
    TYPE_NAMES,
    decode_acls,
    encode_acls,
    encode_change,
    path_of,
)
from kreplica.zookeeper import (
    BadVersion,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    ZooKeeperClient,
    list_all,
    read_all,
)

log = Logger()

CONFLICTS_MAX = 10
"""Maximum number of attempts for a change that conflicts with concurrent changes."""

CHANGE_KEPT_MS = 15 * 60 * 1000
"""Age in milliseconds after which any broker removes a notification."""

Change = Callable[[frozenset[Acl]], frozenset[Acl]]
"""Returns the new ACLs of a resource pattern."""


class AclStore:
    """Keeps the ACLs of an authorizer up to date; owned by the broker."""

    def __init__(self, runtime: Runtime, client: ZooKeeperClient, authorizer: AclAuthorizer) -> None:
        self.rules = authorizer.rules
        self._authorizer = authorizer
        self._client = client
        self._wall_clock_ms = runtime.wall_clock_ms
        self._paths_exist = False
        self._written: dict[ResourcePattern, frozenset[Acl]] = {}
        """Changes made by this broker since the current read began; the read may have missed them."""
        self.watch = ZnodeWatch(runtime.reactor, "the ACLs", self._read)

    async def _read(self, watcher: Watcher) -> None:
        if not self._paths_exist:
            await self._create_paths()
        self._written.clear()
        # The watches are set first, so that no later change is missed.
        notifications = [await self._client.get_children(path, watcher) for path in CHANGES.values()]
        acls = await self._read_acls(await self._patterns())
        # A later change by another broker triggers another read.
        self.rules.replace({**acls, **self._written})
        self._authorizer.forget()
        for root, names in zip(CHANGES.values(), notifications, strict=True):
            await self._remove_old([f"{root}/{name}" for name in names])

    async def _patterns(self) -> list[ResourcePattern]:
        """Read the patterns that have ACLs."""
        parents = {
            (pattern, kind): f"{root}/{name}" for pattern, root in ROOTS.items() for kind, name in TYPE_NAMES.items()
        }
        listed = await list_all(self._client, list(parents.values()))
        return [
            ResourcePattern(kind, name, pattern)
            for (pattern, kind), names in zip(parents, listed, strict=True)
            if isinstance(names, list)
            for name in names
        ]

    async def _read_acls(self, resources: Sequence[ResourcePattern]) -> dict[ResourcePattern, frozenset[Acl]]:
        paths = [path_of(resource) for resource in resources]
        acls: dict[ResourcePattern, frozenset[Acl]] = {}
        for resource, path, result in zip(resources, paths, await read_all(self._client, paths), strict=True):
            if not isinstance(result, tuple):
                continue  # deleted in the meantime
            try:
                acls[resource] = decode_acls(result[0])
            except ValueError as error:
                log.critical("{path}: {error}; all requests for this resource are denied", path=path, error=str(error))
                acls[resource] = frozenset({DENY_ALL})
        return acls

    async def _create_paths(self) -> None:
        for path in PATHS:
            try:
                await self._client.create(path)
            except NodeExists:
                pass
        self._paths_exist = True

    async def _remove_old(self, paths: list[str]) -> None:
        oldest_ms = self._wall_clock_ms() - CHANGE_KEPT_MS
        for path, result in zip(paths, await read_all(self._client, paths), strict=True):
            if isinstance(result, tuple) and result[1].mtime_ms < oldest_ms:
                try:
                    await self._client.delete(path)
                except NoNode:
                    pass

    async def add(
        self, resource: ResourcePattern, acls: Iterable[Acl], *, dry_run: bool = False
    ) -> Sequence[Operation]:
        """Add ACLs to a resource pattern.

        :param dry_run: True to write nothing.
        :return: the ZooKeeper operations.
        :raise KafkaError: ZooKeeper cannot be reached, or there were too many concurrent changes.
        """
        added = frozenset(acls)
        return await self._change(resource, lambda current: current | added, dry_run=dry_run)

    async def select(self, acl_filter: AclFilter) -> list[tuple[ResourcePattern, Acl]]:
        """Return the ACLs in ZooKeeper that a filter selects, including changes that this broker has not applied yet.

        :raise KafkaError: ZooKeeper cannot be reached.
        """
        current = AclRules()
        current.replace(await translate_errors(self._read_current()))
        return list(current.select(acl_filter))

    async def _read_current(self) -> dict[ResourcePattern, frozenset[Acl]]:
        await self._sync()
        return await self._read_acls(await self._patterns())

    async def _sync(self) -> None:
        """Wait until this broker's ZooKeeper server has applied all changes that were confirmed to clients."""
        await self._client.sync(ROOTS[PatternType.LITERAL])

    async def remove(
        self, resource: ResourcePattern, acls: Iterable[Acl], *, dry_run: bool = False
    ) -> Sequence[Operation]:
        """Remove ACLs from a resource pattern.

        :param dry_run: True to write nothing.
        :return: the ZooKeeper operations.
        :raise KafkaError: as for ``add``.
        """
        removed = frozenset(acls)
        return await self._change(resource, lambda current: current - removed, dry_run=dry_run)

    async def _change(self, resource: ResourcePattern, change: Change, *, dry_run: bool) -> Sequence[Operation]:
        path = path_of(resource)
        notification = f"{CHANGES[resource.pattern]}/{CHANGE_PREFIX}"
        notify = Create(notification, encode_change(resource), sequence=True)
        for _ in range(CONFLICTS_MAX):
            version, current = await translate_errors(self._current(path))
            new = change(current)
            data = encode_acls(new)
            write: Create | SetData | Delete
            if version is None:
                write = Create(path, data)
            else:
                write = SetData(path, data, version) if new else Delete(path, version)
            operations = (write, notify)
            if dry_run:
                return operations
            try:
                await translate_errors(self._client.multi(operations))
            except MultiFailed as failed:
                if not isinstance(failed.error, (BadVersion, NodeExists, NoNode)):
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failed)) from failed
                continue  # concurrent change: compute the ACLs again
            entries = {pattern: self.rules.of(pattern) for pattern in self.rules.patterns}
            self.rules.replace({**entries, resource: new})
            self._written[resource] = new
            self._authorizer.forget()
            return operations
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"concurrent changes to {path} prevented this one; try again")

    async def _current(self, path: str) -> tuple[int | None, frozenset[Acl]]:
        try:
            data, stat = await self._client.get_data(path)
        except NoNode:
            return None, frozenset()
        try:
            return stat.version, decode_acls(data)
        except ValueError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path}: {error}") from None
