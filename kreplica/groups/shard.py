"""Groups and offsets of one partition of ``__consumer_offsets``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic.group import ClassicGroup
from kreplica.groups.config import GroupsConfig
from kreplica.groups.consumer.group import ConsumerGroup
from kreplica.groups.consumer.persistence import ReplayedGroups
from kreplica.groups.consumer.state import GroupState
from kreplica.groups.consumer_records import is_consumer_key
from kreplica.groups.group import Group
from kreplica.groups.memory_limits import GroupAccount, GroupMemory
from kreplica.groups.offset_expiry import TOMBSTONES_MAX, OffsetExpiry
from kreplica.groups.records import (
    GROUP_KEY_VERSION,
    OFFSET_KEY_VERSIONS,
    GroupRecord,
    key_version,
    parse_group_key,
    parse_group_value,
)
from kreplica.runtime import Runtime
from kreplica.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from kreplica.coordination.cluster_view import ClusterView
    from kreplica.coordination.state_log import Pair, StateLog
    from kreplica.groups.offsets import Offsets
    from kreplica.wire.batches import BatchHeader

log = Logger()

Respond = Callable[[ErrorCode], None]


class GroupShard:
    """A ``coordination.shards.Shard`` that is filled by ``replay`` and serves requests from ``loaded`` to ``unload``.

    The state in memory is the committed state of the log. During a rebalance, however, the group in memory is newer
    than its record, which describes the previous rebalance.

    :param memory: memory totals that all shards of a broker share; None creates separate totals.
    :ivar groups: groups of both types by id, including groups that only have offsets; partial while ``is_restoring``.
    :ivar expiry: removes expired offsets.
    """

    def __init__(
        self,
        runtime: Runtime,
        log: StateLog,
        view: ClusterView,
        config: GroupsConfig,
        offsets: Offsets,
        memory: GroupMemory | None = None,
    ) -> None:
        self._memory = memory or GroupMemory(config.memory)
        self._runtime = runtime
        self._config = config
        self._view = view
        self._records: dict[str, GroupRecord] = {}
        self._replayed = ReplayedGroups()
        self._unrestored: dict[str, GroupState | GroupRecord | None] = {}
        self._restoring: Deferred[None] | None = None
        self.log = log
        self.offsets = offsets
        self.groups: dict[str, Group] = {}
        self.expiry = OffsetExpiry(runtime, self, view, config.expiry)

    # --- loading -----------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, batch: BatchHeader) -> None:
        """Apply a record of the log; ignore unknown record types of newer versions, as Kafka does.

        :raise ProtocolError: the record is malformed.
        """
        version = key_version(key)
        if version in OFFSET_KEY_VERSIONS:
            self.offsets.replay(key, value, batch)
        elif version == GROUP_KEY_VERSION:
            self._replay_classic(key, value)
        elif is_consumer_key(version):
            self._replayed.replay(key, value)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a transaction marker: commit or discard the offsets of the transaction."""
        self.offsets.end_transaction(producer_id, committed)

    def loaded(self) -> None:
        """Start serving requests after the replay.

        Groups are restored in the background or on first use, because there may be many thousands of them. Restored
        members start with a full session timeout.
        """
        for state in self._replayed.states():
            if state.members or state.group_id not in self._records:
                self._unrestored[state.group_id] = state
        for group_id, record in self._records.items():
            self._unrestored.setdefault(group_id, record)
        for group_id in self.offsets.group_ids():
            self._unrestored.setdefault(group_id, None)
        self._records, self._replayed = {}, ReplayedGroups()
        self._restoring = Deferred.fromCoroutine(self._restore_all())
        self._restoring.addErrback(_log_restore_failure)
        self.offsets.on_first_offset = self._on_first_offset
        self.expiry.start()

    def unload(self) -> None:
        """Stop timers and respond to pending requests with NOT_COORDINATOR."""
        self.expiry.stop()
        if self._restoring is not None:
            self._restoring.cancel()
        self._unrestored = {}
        groups, self.groups = self.groups, {}
        for group in groups.values():
            group.unload()
        self.offsets.unload()

    def _on_first_offset(self, group_id: str) -> None:
        """Recreate a group whose commit was reported as failed but was committed later."""
        if self.group(group_id) is None:
            self.groups[group_id] = self._new_classic(group_id)

    def _replay_classic(self, key: bytes, value: bytes | None) -> None:
        group_id = parse_group_key(key)
        if value is None:
            self._records.pop(group_id, None)
        else:
            self._records[group_id] = parse_group_value(value)

    @property
    def is_restoring(self) -> bool:
        """True while ``groups`` is incomplete after loading."""
        return bool(self._unrestored)

    async def _restore_all(self) -> None:
        time_slice = TimeSlice(self._runtime.reactor)
        for group_id in list(self._unrestored):
            self.group(group_id)
            if time_slice.is_over:
                await time_slice.next()

    # --- finding -----------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """Return the group with this id, of either type, or None."""
        if group_id in self._unrestored:
            replayed = self._unrestored.pop(group_id)
            if isinstance(replayed, GroupState):
                loaded = self.groups[group_id] = self._new_consumer(replayed)
                loaded.account.open("", is_rejectable=False)
            else:
                self.groups[group_id] = self._new_classic(group_id, replayed)
        return self.groups.get(group_id)

    def classic(self, group_id: str, address: str = "") -> ClassicGroup:
        """Return the classic group with this id; create it if no group or only an empty KIP-848 group has this id.

        :param address: client address to which a new group is charged.
        :raise KafkaError: INCONSISTENT_GROUP_PROTOCOL if it is a KIP-848 group with members; GROUP_MAX_SIZE_REACHED if
            a memory limit does not allow another group.
        """
        group = self.group(group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty:
            self._remove_consumer(group)
            group = None
        if group is None:
            account = GroupAccount(self._memory, group_id)
            account.open(address)
            group = self.groups[group_id] = self._new_classic(group_id, account=account)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group_id!r} uses the consumer protocol")
        return group

    def _new_classic(
        self, group_id: str, record: GroupRecord | None = None, account: GroupAccount | None = None
    ) -> ClassicGroup:
        if account is None:
            account = GroupAccount(self._memory, group_id)
            account.open("", is_rejectable=False)
        return ClassicGroup(
            group_id, self._runtime, self.log, self._config.classic, self.remove_if_unused, account, record
        )

    def consumer(self, group_id: str, *, is_new_allowed: bool) -> ConsumerGroup:
        """Return the KIP-848 group with this id.

        :param is_new_allowed: create the group if it does not exist or is a classic group without members; the
            caller then registers the new group with ``register``.
        :raise KafkaError: GROUP_ID_NOT_FOUND.
        """
        group = self.group(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not is_new_allowed or (group is not None and not group.is_empty):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no KIP-848 group {group_id!r}")
        return self._new_consumer(GroupState(group_id), group.tombstones() if group is not None else ())

    def register(self, group: ConsumerGroup, address: str) -> None:
        """Register a KIP-848 group that has received its first member.

        :param address: client address to which a new group is charged.
        """
        replaced = self.group(group.group_id)
        if replaced is not group:
            group.account.open(address, is_rejectable=False)
            self.groups[group.group_id] = group
            if replaced is not None:
                replaced.unload()

    def _new_consumer(self, state: GroupState, preceding: Sequence[Pair] = ()) -> ConsumerGroup:
        account = GroupAccount(self._memory, state.group_id)
        return ConsumerGroup(state, self._runtime, self.log, self._view, self._config.consumer, account, preceding)

    # --- removing ----------------------------------------------------------------------------------------------------

    def delete(self, group_id: str, respond: Respond) -> None:
        """Delete a group that has no members, with its offsets.

        :param respond: called with NONE once the deletion is committed, otherwise with the error.
        :raise KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self.group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        group.check_delete()
        records = [*self.offsets.tombstones(group_id), *group.tombstones()]
        if not records:
            self._forget(group)
            respond(ErrorCode.NONE)
            return
        self._append_tombstones(group, records, respond)

    def _append_tombstones(self, group: Group, records: Sequence[Pair], respond: Respond) -> None:
        """Append tombstones in batches, each once the previous one is committed; those of the group itself are last."""
        first, remaining = records[:TOMBSTONES_MAX], records[TOMBSTONES_MAX:]

        def on_appended(code: ErrorCode) -> None:
            if code is ErrorCode.NONE and remaining:
                self._append_tombstones(group, remaining, respond)
            else:
                respond(code)

        self.log.append(first, lambda: self._apply_tombstones(group, first), on_appended)

    def remove_if_unused(self, group_id: str) -> None:
        """Remove a group that has no members, offsets or records from memory."""
        group = self.group(group_id)
        if group is not None and group.is_empty and not group.tombstones() and not self.offsets.has(group_id):
            self._forget(group)

    def _remove_consumer(self, group: ConsumerGroup) -> None:
        """Remove a KIP-848 group that is replaced by a classic group with the same id.

        If the broker fails before the tombstones are written, the old group is loaded without members and can be
        replaced again.
        """
        records = group.tombstones()
        self._forget(group)
        if records:
            self.log.append(records, lambda: None, lambda code: None)

    def _apply_tombstones(self, group: Group, records: Sequence[Pair]) -> None:
        """Apply committed tombstones; members that have joined since then and later commits remain."""
        self.offsets.forget(records)
        if group.is_empty and not self.offsets.has(group.group_id):
            self._forget(group)

    def _forget(self, group: Group) -> None:
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
        group.unload()


def _log_restore_failure(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("cannot restore loaded groups", failure)
