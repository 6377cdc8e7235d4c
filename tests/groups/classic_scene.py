"""Coordinator of classic groups with a simulated clock, a scripted log and scripted members.

Tests are transcripts of steps and their results.
"""

from __future__ import annotations

import random
import shlex
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.task import Clock

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic.config import ClassicConfig
from kreplica.groups.classic.group import ClassicGroup
from kreplica.groups.classic.requests import Join, JoinResponse, Leave, Sync, SyncResponse
from kreplica.groups.config import GroupsConfig
from kreplica.groups.coordinator import GroupCoordinator
from kreplica.groups.memory_limits import GroupBounds, GroupMemory
from kreplica.groups.offsets import Offsets
from kreplica.groups.records import CommittedOffset, build_offset_value, key_version, parse_group_value
from kreplica.groups.shard import GroupShard
from kreplica.runtime import Runtime
from kreplica.wire.batches import BatchHeader
from kreplica.wire.messages.consumer_protocol import SUBSCRIPTION, build_versioned

if TYPE_CHECKING:
    from kreplica.coordination.cluster_view import ClusterView
    from kreplica.coordination.shards import Shards
    from kreplica.coordination.state_log import Pair, StateLog

GROUP = "group"
START_MS = 1_700_000_000_000
NOT_TRANSACTIONAL = cast(BatchHeader, SimpleNamespace(is_transactional=False, producer_id=-1))


class ScriptedLog:
    """``StateLog`` whose appends are committed or rejected by the test, in order.

    :ivar records: the committed records.
    """

    def __init__(self) -> None:
        self.records: list[Pair] = []
        self.waiting: deque[tuple[Sequence[Pair], Callable[[], None], Callable[[ErrorCode], None]]] = deque()
        self.on_append: Callable[[Sequence[Pair]], None] = lambda records: None

    def append(
        self, records: Sequence[Pair], committed: Callable[[], None], answer: Callable[[ErrorCode], None]
    ) -> None:
        self.waiting.append((records, committed, answer))
        self.on_append(records)

    def commit(self, count: int = 2**31) -> None:
        """Commit the first ``count`` pending appends, by default all, including those appended meanwhile."""
        while self.waiting and count > 0:
            count -= 1
            records, committed, answer = self.waiting.popleft()
            self.records += records
            committed()
            answer(ErrorCode.NONE)

    def reject(self, code: ErrorCode) -> None:
        """Reject the first pending append."""
        _, _, answer = self.waiting.popleft()
        answer(code)


class StrictClock(Clock):
    """Clock that rejects negative delays, as a real reactor does."""

    def callLater(self, when: float, what: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        assert when >= 0, f"{when} s"
        return super().callLater(when, what, *args, **kwargs)


class OneShard:
    """``Shards`` for a topic with a single partition; without a shard, this broker does not lead the partition."""

    def __init__(self) -> None:
        self.shard: GroupShard | None = None
        self.error = ErrorCode.NOT_COORDINATOR
        self.is_loading = False
        self.has_lease = True

    def shard_of(self, name: str) -> GroupShard:
        if self.shard is None:
            raise KafkaError(self.error)
        return self.shard

    def current_shard_of(self, name: str) -> GroupShard:
        shard = self.shard_of(name)
        if not self.has_lease:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return shard

    def loaded_shards(self) -> list[GroupShard]:
        return [self.shard] if self.shard is not None else []


class ClassicScene:
    """Simulated clock, scripted log, and successive coordinators."""

    def __init__(self, *, memory: GroupBounds | None = None, **config: int) -> None:
        self.clock = StrictClock()
        self.memory = GroupMemory(memory)
        self.config = ClassicConfig(**config)
        self.log = ScriptedLog()
        self.shards = OneShard()
        self.runtime = Runtime(
            reactor=cast(Any, self.clock),
            disk=cast(Any, None),
            offload=cast(Any, None),
            random=random.Random(1),
            wall_clock_ms=lambda: START_MS + round(self.clock.seconds() * 1000),
        )
        self.coordinator = GroupCoordinator(self.runtime, cast("Shards[GroupShard]", self.shards), self.config)
        self.load()

    def load(self) -> None:
        """Start a coordinator that replays the committed records."""
        log = cast("StateLog", self.log)
        view = cast("ClusterView", SimpleNamespace(partition_count=lambda topic: 1, topics=lambda: ["t"]))
        shard = GroupShard(self.runtime, log, view, GroupsConfig(classic=self.config), Offsets(log), self.memory)
        for key, value in self.log.records:
            shard.replay(key, value, NOT_TRANSACTIONAL)
        shard.loaded()
        self.shards.shard = shard

    def fail_over(self) -> None:
        """Stop the coordinator, drop its uncommitted appends, and start another one that loads the log."""
        self.unload()
        self.load()

    def unload(self) -> None:
        """Stop the coordinator and drop its uncommitted appends."""
        assert self.shards.shard is not None
        self.shards.shard.unload()
        self.shards.shard = None
        waiting, self.log.waiting = self.log.waiting, deque()
        for _, _, answer in waiting:
            answer(ErrorCode.NOT_COORDINATOR)

    def advance(self, seconds: float) -> None:
        """Advance time, one timer at a time."""
        end = self.clock.seconds() + seconds
        while (times := [call.getTime() for call in self.clock.getDelayedCalls()]) and min(times) <= end:
            self.clock.advance(max(min(times) - self.clock.seconds(), 0))
        self.clock.advance(end - self.clock.seconds())

    @property
    def shard(self) -> GroupShard:
        assert self.shards.shard is not None
        return self.shards.shard

    @property
    def group(self) -> ClassicGroup:
        group = self.shard.group(GROUP)
        assert isinstance(group, ClassicGroup), group
        return group

    def commit_offset(self, topic: str = "t", offset: int = 7) -> None:
        """Commit an offset as a client that is not a member."""
        self.shard.classic(GROUP)
        value = build_offset_value(CommittedOffset(offset, -1, "", START_MS))
        self.shard.offsets.commit(GROUP, [(topic, [(0, value)])], lambda code: None)
        self.log.commit()


def join_request(member_id: str = "", **changes: Any) -> Join:
    """Return a JoinGroup request with default values for all other fields."""
    defaults = Join(member_id, None, "client", "/127.0.0.1", 10_000, 30_000, "consumer", protocols("range"))
    return replace(defaults, **changes)


def protocols(*names: str, topics: Sequence[str] = ("t",)) -> tuple[tuple[str, bytes], ...]:
    """Return protocols, each with a subscription to these topics."""
    subscription = build_versioned(SUBSCRIPTION, 1, {"topics": list(topics), "owned_partitions": []})
    return tuple((name, subscription) for name in names)


@dataclass
class Actor:
    """A client: the options of its JoinGroup requests, and its current identity in the group."""

    name: str
    options: dict[str, str] = field(default_factory=dict)
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1


class Story:
    """Executes the steps of a transcript and records the results of each.

    A line ``> a joins`` is a step; the lines below it are its results. ``run`` returns the whole transcript with the
    actual results.
    """

    def __init__(self, scene: ClassicScene) -> None:
        self.scene = scene
        self.results: list[str] = []
        self.actors: dict[str, Actor] = {}
        self._names: dict[str, str] = {"": "none"}
        scene.log.on_append = self._record_append

    def run(self, script: str) -> str:
        """Execute the steps of a transcript.

        :return: the transcript with the actual results.
        """
        lines = []
        for line in script.strip().splitlines():
            if line.startswith(">"):
                words = shlex.split(line[1:])
                self._step(words)
                lines += [line, *self.results]
                self.results = []
        return "\n".join(lines) + "\n"

    # --- steps -------------------------------------------------------------------------------------------------------

    def _step(self, words: list[str]) -> None:
        options = dict(word.split("=", 1) for word in words if "=" in word)
        words = [word for word in words if "=" not in word]
        first, arguments = words[0], words[1:]
        if first in ("wait", "commit", "reject", "fail", "show", "unload", "load"):
            getattr(self, f"_{first}")(*arguments)
        else:
            actor = self.actors.setdefault(first, Actor(first))
            getattr(self, f"_{arguments[0]}")(actor, *arguments[1:], **options)

    def _wait(self, seconds: str) -> None:
        self.scene.advance(float(seconds))

    def _commit(self, count: str = "1000") -> None:
        self.scene.log.commit(int(count))

    def _reject(self, code: str) -> None:
        self.scene.log.reject(ErrorCode[code])

    def _fail(self, over: str) -> None:
        self.scene.fail_over()
        self._show()

    def _unload(self) -> None:
        self.scene.unload()

    def _load(self) -> None:
        self.scene.load()
        self._show()

    def _show(self) -> None:
        group = self.scene.shard.group(GROUP)
        if not isinstance(group, ClassicGroup):
            self.results.append("  no group")
            return
        members = " ".join(self._name(member) for member in group.roster.members)
        leader = f", led by {self._name(group.roster.leader)}" if group.roster.leader else ""
        self.results.append(f"  {group.state_name} {group.generation}: {members or 'none'}{leader}")

    def _joins(self, actor: Actor, **options: str) -> None:
        """Send JoinGroup.

        Options: ``static``: an instance ID; ``protocols``; ``session`` and ``rebalance``: timeouts in milliseconds;
        ``version``; ``as``: a member ID for this request only.
        """
        member_id = options.pop("as", actor.member_id)
        options = actor.options = actor.options | options
        actor.instance_id = options.get("static")
        version = int(options.get("version", "9"))
        request = join_request(
            member_id,
            client_id=actor.name,
            instance_id=actor.instance_id,
            protocols=protocols(*options.get("protocols", "range").split(",")),
            protocol_type=options.get("type", "consumer"),
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "30000")),
            requires_known_member=version >= 4,
            may_skip_assignment=version >= 9,
        )
        self.scene.coordinator.join(GROUP, request, lambda joined: self._record_join(actor, joined))

    def _syncs(self, actor: Actor, **assignments: str) -> None:
        """Send SyncGroup; the options are the assignments of members."""
        sync = Sync(
            actor.generation,
            actor.member_id,
            actor.instance_id,
            assignments=[
                (self.actors[name].member_id, assignment.encode()) for name, assignment in assignments.items()
            ],
        )
        self.scene.coordinator.sync(GROUP, sync, lambda synced: self._record_sync(actor, synced))

    def _beats(self, actor: Actor, **options: str) -> None:
        generation = int(options.get("generation", actor.generation))
        code = self.scene.coordinator.heartbeat(GROUP, actor.member_id, actor.instance_id, generation)
        self.results.append(f"  {actor.name}: {code.name}")

    def _leaves(self, actor: Actor) -> None:
        self._send_leave(actor, Leave(actor.member_id, actor.instance_id))

    def _is(self, actor: Actor, what: str) -> None:
        """Remove the member by its instance ID, as an administrator: ``a is removed``."""
        assert what == "removed"
        self._send_leave(actor, Leave("", actor.instance_id))

    def _send_leave(self, actor: Actor, leave: Leave) -> None:
        (code,) = self.scene.coordinator.leave(GROUP, [leave])
        self.results.append(f"  {actor.name}: left, {code.name}")

    def _commits(self, actor: Actor, **options: str) -> None:
        try:
            self.scene.group.check_commit(
                actor.member_id, actor.instance_id, actor.generation, transactional="txn" in options, version=9
            )
            code = ErrorCode.NONE
        except KafkaError as error:
            code = error.code
        self.results.append(f"  {actor.name}: {code.name}")

    # --- results -----------------------------------------------------------------------------------------------------

    def _record_join(self, actor: Actor, joined: JoinResponse) -> None:
        if joined.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            actor.member_id = joined.member_id
            self._names[joined.member_id] = actor.name
        if joined.error is not ErrorCode.NONE:
            self.results.append(f"  {actor.name}: {joined.error.name}")
            return
        actor.generation = joined.generation
        if joined.members:
            role = "leads " + " ".join(self._name(member.member_id) for member in joined.members)
        else:
            role = f"follows {self._name(joined.leader)}"
        skips = ", skips the assignment" if joined.skip_assignment else ""
        self.results.append(f"  {actor.name}: joined {joined.generation} with {joined.protocol_name}, {role}{skips}")

    def _record_sync(self, actor: Actor, synced: SyncResponse) -> None:
        result = synced.error.name if synced.error is not ErrorCode.NONE else f"assigned {synced.assignment.decode()!r}"
        self.results.append(f"  {actor.name}: {result}")

    def _record_append(self, records: Sequence[Pair]) -> None:
        for key, value in records:
            if value is None:
                self.results.append(f"  log: tombstone of {('offset', 'offset', 'group')[key_version(key)]}")
            elif key_version(key) == 2:
                record = parse_group_value(value)
                members = " ".join(
                    f"{self._name(member.member_id)}={member.assignment.decode()}" for member in record.members
                )
                self.results.append(f"  log: {record.generation}: {members or 'none'}")

    def _name(self, member_id: str | None) -> str:
        # A member ID that the client does not know yet starts with its client ID or instance ID.
        return self._names.get(member_id or "", (member_id or "").partition("-")[0])


def check_transcript(transcript: str, **config: int) -> None:
    """Assert that the steps have the recorded results and that stopping the coordinator leaves no timer."""
    scene = ClassicScene(**{"initial_rebalance_delay_ms": 0} | config)
    assert Story(scene).run(transcript) == transcript.lstrip("\n")
    if scene.shards.shard is not None:
        scene.unload()
    assert scene.clock.getDelayedCalls() == []
