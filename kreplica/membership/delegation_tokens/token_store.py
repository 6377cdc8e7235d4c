"""Reads delegation tokens from ZooKeeper, watches for changes, and writes changes (KIP-48)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from kreplica.cluster.uuids import random_uuid, uuid_text
from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.znode_watch import Watcher, ZnodeWatch
from kreplica.membership.zookeeper_errors import translate_errors
from kreplica.runtime import Runtime
from kreplica.runtime.time_slice import TimeSlice
from kreplica.security.sasl.scram import TokenCredential
from kreplica.security.tokens.token import DelegationToken, TokenLifetimes, is_visible
from kreplica.security.tokens.token_cache import TokenCache
from kreplica.security.tokens.znodes import (
    CHANGE_PREFIX,
    CHANGES,
    PATHS,
    TOKENS,
    decode_token,
    encode_token,
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
    read_all,
)

log = Logger()

CONFLICTS_MAX = 10
"""Maximum number of attempts for a change that conflicts with concurrent changes."""

CHANGE_KEPT_MS = 15 * 60 * 1000
"""Age in milliseconds after which any broker removes a notification."""

TokenChange = Callable[[DelegationToken, int], DelegationToken | None]
"""Function from a token and the current time to its new state; None deletes the token."""


class TokenStore:
    """Keeps the delegation tokens of a broker up to date; owned by the broker.

    :param key: ``delegation.token.secret.key``.
    """

    def __init__(self, runtime: Runtime, client: ZooKeeperClient, key: bytes, lifetimes: TokenLifetimes) -> None:
        self.cache = TokenCache(key)
        self.lifetimes = lifetimes
        self.wall_clock_ms = runtime.wall_clock_ms
        self._client = client
        self._random = runtime.secret_random
        self._notifications: dict[str, int] = {}
        """Applied notifications that still exist, with their times in milliseconds since 1970."""
        self._is_read = False
        self._written: set[str] = set()
        """Tokens that this broker has changed since the current read began; the read may have missed the changes."""
        self._reading_lock = DeferredLock()
        self._reactor = runtime.reactor
        self.watch = ZnodeWatch(runtime.reactor, "the delegation tokens", self._read)

    def forget(self) -> None:
        """Make the next read a full one, because notifications may have been missed."""
        self._is_read = False

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return the credential for clients that authenticate with a token; None if there is no valid token."""
        token = self.cache.find(token_id)
        if token is None or token.is_expired(self.wall_clock_ms()):
            return None
        return self.cache.credential(mechanism, token_id)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, watcher: Watcher) -> None:
        if not self._is_read:
            await self._create_paths()
        await self._apply_changes(watcher)

    async def catch_up(self) -> None:
        """Apply other brokers' changes, including those that this broker has not been notified of yet.

        :raise KafkaError: ZooKeeper cannot be reached.
        """
        await translate_errors(self._catch_up())

    async def _catch_up(self) -> None:
        await self._sync()
        await self._apply_changes()

    async def _sync(self) -> None:
        """Wait until this broker's ZooKeeper server has applied the changes that other brokers have written."""
        await self._client.sync(CHANGES)

    async def _apply_changes(self, watcher: Watcher | None = None) -> None:
        """Read the tokens named by new notifications, or all tokens the first time; one read at a time.

        :param watcher: called after the next change.
        """
        await self._reading_lock.acquire()
        try:
            self._written.clear()
            # The watch is set first, so that no later change is missed.
            await self._apply(set(await self._client.get_children(CHANGES, watcher)))
            await self._remove_old()
        finally:
            self._reading_lock.release()

    async def _apply(self, names: Set[str]) -> None:
        is_complete = not self._is_read
        new = sorted(names - self._notifications.keys())
        changed: dict[str, None] = {}
        times: dict[str, int] = {}
        for name, result in zip(new, await read_all(self._client, [_change_path(name) for name in new]), strict=True):
            if isinstance(result, tuple):
                changed[result[0].decode(errors="replace")] = None
                times[name] = result[1].mtime_ms
        if is_complete:
            token_ids = await self._client.get_children(TOKENS)
        else:
            token_ids = [token_id for token_id in changed if token_id and "/" not in token_id]
        await self._read_tokens(token_ids)
        if is_complete:
            known = {token.token_id for token in self.cache.tokens}
            for token_id in known.difference(token_ids, self._written):
                self.cache.remove(token_id)
        self._is_read = True
        self._notifications = {name: made_ms for name, made_ms in self._notifications.items() if name in names}
        self._notifications |= times

    async def _read_tokens(self, token_ids: Sequence[str]) -> None:
        time_slice = TimeSlice(self._reactor)
        paths = [path_of(token_id) for token_id in token_ids]
        for token_id, path, result in zip(token_ids, paths, await read_all(self._client, paths), strict=True):
            token = _decode(path, result[0]) if isinstance(result, tuple) else None
            if token_id in self._written:
                pass  # a later change by another broker triggers another read
            elif token is None or token.token_id != token_id:
                self.cache.remove(token_id)
            else:
                self.cache.put(token)
            if time_slice.is_over:
                await time_slice.next()

    async def visible_tokens(
        self, principal: str, owners: Collection[str] | None, may_describe: Callable[[DelegationToken], bool]
    ) -> Sequence[DelegationToken]:
        """Return the tokens that a principal may see, including changes by other brokers.

        :param owners: restricts the result to tokens that involve one of these principals; None for all tokens.
        :param may_describe: asks the authorizer about a token that does not involve the principal.
        :raise KafkaError: ZooKeeper cannot be reached.
        """
        await self.catch_up()
        time_slice = TimeSlice(self._reactor)
        found = []
        for token in list(self.cache.tokens):
            if is_visible(token, principal, owners, may_describe):
                found.append(token)
            if time_slice.is_over:
                await time_slice.next()
        return found

    async def _create_paths(self) -> None:
        for path in PATHS:
            try:
                await self._client.create(path, None)
            except NodeExists:
                pass

    async def _remove_old(self) -> None:
        oldest_ms = self.wall_clock_ms() - CHANGE_KEPT_MS
        for name in [name for name, made_ms in self._notifications.items() if made_ms < oldest_ms]:
            try:
                await self._client.delete(_change_path(name))
            except NoNode:
                pass
            self._notifications.pop(name, None)

    # --- changes -----------------------------------------------------------------------------------------------------

    async def create(
        self, owner: str, requester: str, renewers: Iterable[str], max_ms: int, *, dry_run: bool = False
    ) -> tuple[DelegationToken, Sequence[Operation]]:
        """Create a token.

        :param max_ms: requested maximum lifetime; the broker's maximum if it is not positive.
        :param dry_run: True to write nothing.
        :return: the token and the ZooKeeper operations.
        :raise KafkaError: ZooKeeper cannot be reached, or the renewers do not fit into a znode.
        """
        token_id = uuid_text(random_uuid(self._random))
        token = self.lifetimes.new_token(token_id, owner, requester, renewers, max_ms, self.wall_clock_ms())
        operations = (Create(path_of(token_id), encode_token(token)), _notification(token_id))
        if not dry_run:
            try:
                await translate_errors(self._client.multi(operations))
            except MultiFailed as failed:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failed)) from failed
            self._written.add(token_id)
            self.cache.put(token)
            log.info("created delegation token {token} of {owner}", token=token_id, owner=owner)
        return token, operations

    async def find_by_hmac(self, hmac: bytes) -> DelegationToken:
        """Return the token with this secret.

        :raise KafkaError: DELEGATION_TOKEN_NOT_FOUND.
        """
        token = self.cache.find_by_hmac(hmac)
        if token is None:
            await self.catch_up()
            token = self.cache.find_by_hmac(hmac)
        if token is None:
            raise not_found()
        return token

    async def renew(
        self, principal: str, token_id: str, period_ms: int, *, dry_run: bool = False
    ) -> tuple[DelegationToken, Sequence[Operation]]:
        """Extend the validity of a token.

        :param principal: the caller; must own the token or be a renewer.
        :param period_ms: time from now; the broker's ``delegation.token.expiry.time.ms`` if it is negative.
        :param dry_run: True to write nothing.
        :return: the renewed token and the ZooKeeper operations.
        :raise KafkaError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH or DELEGATION_TOKEN_EXPIRED;
            ZooKeeper cannot be reached.
        """

        def change(token: DelegationToken, now_ms: int) -> DelegationToken:
            _check(token, principal, now_ms)
            return token.valid_for(now_ms, self.lifetimes.renewal_of(period_ms))

        return await self._change(token_id, change, dry_run=dry_run)

    async def expire(
        self, principal: str, token_id: str, period_ms: int, *, dry_run: bool = False
    ) -> tuple[DelegationToken, Sequence[Operation]]:
        """Delete a token, or change its expiry time.

        :param principal: the caller; must own the token or be a renewer.
        :param period_ms: time from now; negative to delete the token.
        :param dry_run: True to write nothing.
        :return: the token, which expires now if it was deleted, and the ZooKeeper operations.
        :raise KafkaError: as for ``renew``.
        """

        def change(token: DelegationToken, now_ms: int) -> DelegationToken | None:
            _check(token, principal, now_ms, also_expired=period_ms < 0)
            return None if period_ms < 0 else token.valid_for(now_ms, period_ms)

        return await self._change(token_id, change, dry_run=dry_run)

    async def remove_expired(self) -> None:
        """Delete all tokens that have expired.

        :raise KafkaError: ZooKeeper cannot be reached.
        """

        def change(token: DelegationToken, now_ms: int) -> DelegationToken | None:
            return None if token.is_expired(now_ms) else token

        now_ms = self.wall_clock_ms()
        for token in [each for each in self.cache.tokens if each.is_expired(now_ms)]:
            try:
                await self._change(token.token_id, change)
            except KafkaError as error:
                if error.code is not ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
                    raise

    async def _change(
        self, token_id: str, change: TokenChange, *, dry_run: bool = False
    ) -> tuple[DelegationToken, Sequence[Operation]]:
        path = path_of(token_id)
        for _ in range(CONFLICTS_MAX):
            version, token = await self._current(token_id)
            now_ms = self.wall_clock_ms()
            new = change(token, now_ms)
            if new == token:
                return token, ()
            write: Operation = Delete(path, version) if new is None else SetData(path, encode_token(new), version)
            operations = (write, _notification(token_id))
            result = token.valid_for(now_ms, 0) if new is None else new
            if dry_run:
                return result, operations
            try:
                await translate_errors(self._client.multi(operations))
            except MultiFailed as failed:
                if not isinstance(failed.error, (BadVersion, NoNode)):
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failed)) from failed
                continue  # concurrent change: evaluate the change again
            self._written.add(token_id)
            if new is None:
                self.cache.remove(token_id)
            else:
                self.cache.put(new)
            done = "deleted" if new is None else "changed the expiry of"
            log.info("{done} delegation token {token} of {owner}", done=done, token=token_id, owner=token.owner)
            return result, operations
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"concurrent changes to {path} prevented this one; try again")

    async def _current(self, token_id: str) -> tuple[int, DelegationToken]:
        """Return the version and the state of a token.

        :raise KafkaError: DELEGATION_TOKEN_NOT_FOUND, or ZooKeeper cannot be reached.
        """
        path = path_of(token_id)
        try:
            data, stat = await translate_errors(self._client.get_data(path))
        except NoNode:
            self.cache.remove(token_id)
            raise not_found() from None
        token = _decode(path, data)
        if token is None or token.token_id != token_id:
            raise not_found()
        return stat.version, token


def not_found() -> KafkaError:
    """Return the error for a token that does not exist."""
    return KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "the delegation token does not exist")


def _check(token: DelegationToken, principal: str, now_ms: int, *, also_expired: bool = False) -> None:
    """Check that a principal may renew a token.

    :param also_expired: True to accept an expired token.
    """
    if not token.may_be_renewed_by(principal):
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, f"{principal} is neither the owner nor a renewer of the token"
        )
    if token.is_expired(now_ms) and not also_expired:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "the delegation token has expired")


def _decode(path: str, data: bytes) -> DelegationToken | None:
    try:
        return decode_token(data)
    except ValueError as error:
        log.error("{path}: {error}; the token is ignored", path=path, error=str(error))
        return None


def _change_path(name: str) -> str:
    return f"{CHANGES}/{name}"


def _notification(token_id: str) -> Create:
    return Create(_change_path(CHANGE_PREFIX), token_id.encode(), sequence=True)
