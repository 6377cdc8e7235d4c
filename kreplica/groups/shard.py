"""All that is known of the groups of one partition of ``__consumer_offsets``."""

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
from kreplica.runtime.turns import Turns

if TYPE_CHECKING:
    from kreplica.coordination.cluster_view import ClusterView
    from kreplica.coordination.state_log import Pair, StateLog
    from kreplica.groups.offsets import Offsets
    from kreplica.wire.batches import BatchHeader

log = Logger()

Answer = Callable[[ErrorCode], None]


class GroupShard:
    """A ``coordination.shards.Shard``: made empty, filled by ``replay``, in service from ``loaded`` to ``unload``.

    What is in memory is what is committed in the log; a group that is in the middle of a rebalance is ahead of its
    record, which says how it was after the last one.

    :param memory: shared by all shards of a broker; the shard's own where it is None.
    :ivar groups: by their ids, of both kinds, also those that have offsets only; not all of them while ``is_waking``.
    :ivar expiry: removes offsets that nothing keeps.
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
        self._asleep: dict[str, GroupState | GroupRecord | None] = {}
        self._waking: Deferred[None] | None = None
        self.log = log
        self.offsets = offsets
        self.groups: dict[str, Group] = {}
        self.expiry = OffsetExpiry(runtime, self, view, config.expiry)

    # --- loading -----------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, batch: BatchHeader) -> None:
        """A record of the log; one of a kind that is newer than this code is passed over, as Kafka does.

        :raise ProtocolError: it is malformed.
        """
        version = key_version(key)
        if version in OFFSET_KEY_VERSIONS:
            self.offsets.replay(key, value, batch)
        elif version == GROUP_KEY_VERSION:
            self._replay_classic(key, value)
        elif is_consumer_key(version):
            self._replayed.replay(key, value)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A marker: offsets that were committed within the transaction count now, or are forgotten."""
        self.offsets.end_transaction(producer_id, committed)

    def loaded(self) -> None:
        """Everything is replayed: groups come to life, each when somebody asks for it or in its turn.

        There may be many thousands, whose members get timers.  From then on they have a whole session to be heard of.
        """
        for state in self._replayed.states():
            if state.members or state.group_id not in self._records:
                self._asleep[state.group_id] = state
        for group_id, record in self._records.items():
            self._asleep.setdefault(group_id, record)
        for group_id in self.offsets.group_ids():
            self._asleep.setdefault(group_id, None)
        self._records, self._replayed = {}, ReplayedGroups()
        self._waking = Deferred.fromCoroutine(self._wake_all())
        self._waking.addErrback(_waking_ended)
        self.offsets.appeared = self._offsets_appeared
        self.expiry.start()

    def unload(self) -> None:
        """This broker leads no more: timers stop, and whoever waits is answered with NOT_COORDINATOR."""
        self.expiry.stop()
        if self._waking is not None:
            self._waking.cancel()
        self._asleep = {}
        groups, self.groups = self.groups, {}
        for group in groups.values():
            group.unload()
        self.offsets.unload()

    def _offsets_appeared(self, group_id: str) -> None:
        """A group has offsets; where its commit was given up for lost and the group forgotten, it is here again."""
        if self.group(group_id) is None:
            self.groups[group_id] = self._new_classic(group_id)

    def _replay_classic(self, key: bytes, value: bytes | None) -> None:
        group_id = parse_group_key(key)
        if value is None:
            self._records.pop(group_id, None)
        else:
            self._records[group_id] = parse_group_value(value)

    @property
    def is_waking(self) -> bool:
        """Whether ``groups`` does not have all of them yet."""
        return bool(self._asleep)

    async def _wake_all(self) -> None:
        turns = Turns(self._runtime.reactor)
        for group_id in list(self._asleep):
            self.group(group_id)
            if turns.is_over:
                await turns.next()

    # --- finding -----------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """The group of either kind that has this id."""
        if group_id in self._asleep:
            known = self._asleep.pop(group_id)
            if isinstance(known, GroupState):
                loaded = self.groups[group_id] = self._new_consumer(known)
                loaded.account.open("", is_refusable=False)
            else:
                self.groups[group_id] = self._new_classic(group_id, known)
        return self.groups.get(group_id)

    def classic(self, group_id: str, address: str = "") -> ClassicGroup:
        """The classic group that has this id; an empty one where there is none yet, or one of KIP-848 without members.

        :param address: the client's, which a new group is charged to.
        :raise KafkaError: INCONSISTENT_GROUP_PROTOCOL, it is one of KIP-848, and has members; GROUP_MAX_SIZE_REACHED,
            there is no memory for one more group.
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
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group_id!r} is a group of the consumer protocol")
        return group

    def _new_classic(
        self, group_id: str, record: GroupRecord | None = None, account: GroupAccount | None = None
    ) -> ClassicGroup:
        if account is None:
            account = GroupAccount(self._memory, group_id)
            account.open("", is_refusable=False)
        return ClassicGroup(
            group_id, self._runtime, self.log, self._config.classic, self.remove_if_unused, account, record
        )

    def consumer(self, group_id: str, *, is_new_allowed: bool) -> ConsumerGroup:
        """The group of KIP-848 that has this id.

        :param is_new_allowed: whether a new one is made, also in place of a classic group without members; it counts
            only when ``adopt`` is told.
        :raise KafkaError: GROUP_ID_NOT_FOUND, there is none, or a classic one has this id.
        """
        group = self.group(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not is_new_allowed or (group is not None and not group.is_empty):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r} of the consumer protocol")
        return self._new_consumer(GroupState(group_id), group.tombstones() if group is not None else ())

    def adopt(self, group: ConsumerGroup, address: str) -> None:
        """A group has got its first member: from now on it is found under its id.

        :param address: of that member's client, which a new group is charged to.
        """
        replaced = self.group(group.group_id)
        if replaced is not group:
            group.account.open(address, is_refusable=False)
            self.groups[group.group_id] = group
            if replaced is not None:
                replaced.unload()

    def _new_consumer(self, state: GroupState, preceding: Sequence[Pair] = ()) -> ConsumerGroup:
        account = GroupAccount(self._memory, state.group_id)
        return ConsumerGroup(state, self._runtime, self.log, self._view, self._config.consumer, account, preceding)

    # --- removing ----------------------------------------------------------------------------------------------------

    def delete(self, group_id: str, answer: Answer) -> None:
        """Delete a group without members, with its offsets.

        :param answer: told once the deletion is committed, and why not else.
        :raise KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self.group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        group.check_delete()
        records = [*self.offsets.tombstones(group_id), *group.tombstones()]
        if not records:
            self._forget(group)
            answer(ErrorCode.NONE)
            return
        self._delete_some(group, records, answer)

    def _delete_some(self, group: Group, records: Sequence[Pair], answer: Answer) -> None:
        """As many as fit into a batch, and the others when these are committed; the group's own come last."""
        first, rest = records[:TOMBSTONES_MAX], records[TOMBSTONES_MAX:]

        def answered(code: ErrorCode) -> None:
            if code is ErrorCode.NONE and rest:
                self._delete_some(group, rest, answer)
            else:
                answer(code)

        self.log.append(first, lambda: self._deleted(group, first), answered)

    def remove_if_unused(self, group_id: str) -> None:
        """Forget a group that has neither members nor offsets, and of which nothing is in the log."""
        group = self.group(group_id)
        if group is not None and group.is_empty and not group.tombstones() and not self.offsets.has(group_id):
            self._forget(group)

    def _remove_consumer(self, group: ConsumerGroup) -> None:
        """A classic group takes the id.

        Where this is not written, and this broker fails before the classic group is, there still is the one that
        it replaces: without members, so that it may be replaced again.
        """
        records = group.tombstones()
        self._forget(group)
        if records:
            self.log.append(records, lambda: None, lambda code: None)

    def _deleted(self, group: Group, records: Sequence[Pair]) -> None:
        """The tombstones are committed: what is left is who joined meanwhile, and what was committed after them."""
        self.offsets.forget(records)
        if group.is_empty and not self.offsets.has(group.group_id):
            self._forget(group)

    def _forget(self, group: Group) -> None:
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
        group.unload()


def _waking_ended(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("groups that were loaded cannot be restored", failure)
