"""Coordinator of KIP-848 groups with a simulated clock, a scripted log and scripted members.

Tests are transcripts of steps and their results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from classic_scene import NOT_TRANSACTIONAL, START_MS, OneShard, ScriptedLog
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.config import GroupsConfig
from kreplica.groups.consumer.assignment import Assignment, from_rows, pairs, union
from kreplica.groups.consumer.config import ConsumerConfig
from kreplica.groups.consumer.group import ConsumerGroup
from kreplica.groups.consumer.members import JOINING, LEAVING, LEAVING_TEMPORARILY
from kreplica.groups.consumer.requests import Heartbeat
from kreplica.groups.consumer.state import GroupState
from kreplica.groups.consumer.transitions import HeartbeatResponse
from kreplica.groups.consumer_coordinator import ConsumerCoordinator
from kreplica.groups.memory_limits import GroupBounds, GroupMemory
from kreplica.groups.offsets import Offsets
from kreplica.groups.shard import GroupShard
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime

if TYPE_CHECKING:
    from kreplica.coordination.cluster_view import ClusterView
    from kreplica.coordination.shards import Shards
    from kreplica.coordination.state_log import StateLog

GROUP = "group"
VERSION = 1


class Cluster:
    """``ClusterView`` with scripted topics; a recreated topic gets a new ID."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.ids: dict[str, UUID] = {}
        self._created_count = 0
        self._callbacks: list[Callable[[], None]] = []

    def set_partition_count(self, topic: str, partitions: int) -> None:
        """Set the partition count of a topic; 0 deletes it."""
        if not partitions:
            del self.counts[topic], self.ids[topic]
        else:
            if topic not in self.counts:
                self._created_count += 1
                self.ids[topic] = UUID(int=self._created_count)
            self.counts[topic] = partitions
        for callback in self._callbacks:
            callback()

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def topic_id(self, topic: str) -> UUID | None:
        return self.ids.get(topic)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, each in self.ids.items() if each == topic_id), None)

    def topics(self) -> list[str]:
        return sorted(self.counts)

    def racks_of(self, key: TopicPartition) -> frozenset[str]:
        return frozenset()

    def leader_of(self, key: TopicPartition) -> int | None:
        return 1

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)


class Member:
    """Client side of a group membership.

    :ivar owned: the partitions that the client reads.
    :ivar is_stubborn: True if the client does not revoke partitions.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = name
        self.epoch = JOINING
        self.instance_id: str | None = None
        self.subscription: dict[str, Any] = {}
        self.owned: Assignment = {}
        self.is_stubborn = False

    def join_heartbeat(self) -> Heartbeat:
        """Return the first heartbeat, which joins the group."""
        self.epoch, self.owned = JOINING, {}
        return self.heartbeat(full=True)

    def heartbeat(self, *, full: bool = False, quiet: bool = False, epoch: int | None = None) -> Heartbeat:
        """Return a heartbeat.

        :param full: include all fields.
        :param quiet: omit the owned partitions.
        """
        fields = self.subscription if full else {}
        return Heartbeat(
            GROUP,
            self.member_id,
            self.epoch if epoch is None else epoch,
            instance_id=self.instance_id,
            owned=None if quiet else self.owned,
            client_id="client",
            client_host="/127.0.0.1",
            **fields,
        )

    def leave_heartbeat(self, epoch: int = LEAVING) -> Heartbeat:
        """Return the member's last heartbeat."""
        self.owned = {}
        return Heartbeat(GROUP, self.member_id, epoch, instance_id=self.instance_id)

    def apply(self, answer: HeartbeatResponse) -> None:
        """Apply a response; a stubborn client keeps the partitions that it should revoke."""
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = union(self.owned, answer.assignment) if self.is_stubborn else answer.assignment

    def drop_partitions(self) -> None:
        """Drop all partitions, as a fenced client does."""
        self.epoch, self.owned = JOINING, {}


class ConsumerScene:
    """Simulated clock, cluster, scripted log, and successive coordinators."""

    def __init__(self, *, memory: GroupBounds | None = None, **config: Any) -> None:
        self.clock = Clock()
        self.memory = GroupMemory(memory)
        self.config = ConsumerConfig(**config)
        self.cluster = Cluster()
        self.log = ScriptedLog()
        self.shards = OneShard()
        self.runtime = Runtime(
            reactor=cast(Any, self.clock),
            disk=cast(Any, None),
            offload=cast(Any, None),
            random=random.Random(1),
            wall_clock_ms=lambda: START_MS + round(self.clock.seconds() * 1000),
        )
        self.load()

    def load(self) -> None:
        """Start a coordinator that replays the committed records."""
        view = cast("ClusterView", self.cluster)
        self.coordinator = ConsumerCoordinator(self.runtime, cast("Shards[GroupShard]", self.shards), view, self.config)
        log = cast("StateLog", self.log)
        shard = GroupShard(self.runtime, log, view, GroupsConfig(consumer=self.config), Offsets(log), self.memory)
        for key, value in self.log.records:
            shard.replay(key, value, NOT_TRANSACTIONAL)
        shard.loaded()
        self.shards.shard = shard

    def unload(self) -> None:
        """Stop the coordinator and drop its uncommitted appends."""
        self.shard.unload()
        self.shards.shard = None
        waiting = list(self.log.waiting)
        self.log.waiting.clear()
        for _, _, answer in waiting:
            answer(ErrorCode.NOT_COORDINATOR)

    def fail_over(self) -> None:
        """Stop the coordinator and start another one that loads the log."""
        self.unload()
        self.load()

    @property
    def shard(self) -> GroupShard:
        assert self.shards.shard is not None
        return self.shards.shard

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.group(GROUP)
        assert isinstance(group, ConsumerGroup), group
        return group

    @property
    def state(self) -> GroupState:
        return self.group.committed

    def send(
        self, heartbeat: Heartbeat, on_response: Callable[[HeartbeatResponse | ErrorCode], None], version: int = VERSION
    ) -> None:
        """Send a heartbeat."""

        def on_failure(failure: Failure) -> None:
            failure.trap(KafkaError)
            on_response(cast(KafkaError, failure.value).code)

        Deferred.fromCoroutine(self.coordinator.heartbeat(heartbeat, version)).addCallbacks(on_response, on_failure)

    def advance(self, seconds: float) -> None:
        """Advance time, one timer at a time, and commit all writes."""
        end = self.clock.seconds() + seconds
        while (times := [call.getTime() for call in self.clock.getDelayedCalls()]) and min(times) <= end:
            self.clock.advance(max(min(times) - self.clock.seconds(), 0))
            self.log.commit()
        self.clock.advance(end - self.clock.seconds())

    def text(self, assignment: Assignment) -> str:
        """Format partitions as in transcripts; the name of a deleted topic is replaced by a question mark."""
        words = [f"{self.cluster.topic_name(topic_id) or '?'}{each}" for topic_id, each in pairs(assignment)]
        return " ".join(sorted(words)) or "nothing"


class Transcript:
    """Executes the lines of a transcript and records the results."""

    def __init__(self, **config: Any) -> None:
        self.scene = ConsumerScene(**config)
        self.scene.cluster.set_partition_count("t", 4)
        self.members: dict[str, Member] = {}
        self.lines: list[str] = []
        self._holds_commits = False

    def execute(self, line: str) -> None:
        """Execute one line."""
        self.lines.append(f"> {line}")
        first, *words = line.split()
        command = getattr(self, f"_{first.replace('-', '_')}", None)
        if command is not None:
            command(*words)
        else:
            self._member(first, *words)
        if not self._holds_commits:
            self.scene.log.commit()

    def _member(self, name: str, verb: str, *words: str) -> None:
        member = self.members.setdefault(name, Member(name))
        getattr(self, f"_{verb}")(member, *words)

    # --- steps of members --------------------------------------------------------------------------------------------

    def _joins(self, member: Member, *words: str) -> None:
        if words:
            self._subscribe(member, words)
        self._send(member, member.join_heartbeat())

    def _subscribe(self, member: Member, words: Iterable[str]) -> None:
        options = dict(word.split("=", 1) for word in words if "=" in word)
        expression = next((word[1:] for word in words if word.startswith("~")), None)
        member.instance_id = options.get("static", member.instance_id)
        member.subscription = {
            "topic_names": tuple(sorted(word for word in words if "=" not in word and not word.startswith("~"))),
            "regular_expression": expression,
            "rebalance_timeout_ms": int(options.get("timeout", 60)) * 1000,
            "server_assignor": options.get("assignor"),
        }

    def _subscribes(self, member: Member, *words: str) -> None:
        self._subscribe(member, words)
        self._send(member, member.heartbeat(full=True))

    def _beats(self, member: Member, *words: str) -> None:
        epoch = next((int(word) for word in words if word.isdigit()), None)
        self._send(member, member.heartbeat(full="fully" in words, quiet="quietly" in words, epoch=epoch))

    def _leaves(self, member: Member, *words: str) -> None:
        self._send(member, member.leave_heartbeat(LEAVING_TEMPORARILY if words else LEAVING))

    def _stops(self, member: Member, *_: str) -> None:
        member.is_stubborn = True

    def _revokes(self, member: Member, *_: str) -> None:
        member.is_stubborn = False
        state = self.scene.state.members[member.member_id].progress
        member.owned = state.assigned

    def _owns(self, member: Member, *words: str) -> None:
        ids = self.scene.cluster.ids
        member.owned = from_rows({"topic_id": ids[word[:-1]], "partitions": [int(word[-1])]} for word in words)

    def _commits(self, member: Member, epoch: str | None = None) -> None:
        self._check(member, lambda: self.scene.group.check_commit(
            member.member_id, member.instance_id, int(epoch or member.epoch), transactional=False, version=9
        ))  # fmt: skip

    def _fetches(self, member: Member, epoch: str | None = None) -> None:
        self._check(member, lambda: self.scene.group.check_fetch(member.member_id, int(epoch or member.epoch)))

    def _check(self, member: Member, check: Callable[[], None]) -> None:
        try:
            check()
        except KafkaError as error:
            self.lines.append(f"  {member.name}: {error.code.name}")
        else:
            self.lines.append(f"  {member.name}: allowed")

    def _send(self, member: Member, heartbeat: Heartbeat) -> None:
        def on_response(answer: HeartbeatResponse | ErrorCode) -> None:
            if isinstance(answer, ErrorCode):
                self.lines.append(f"  {member.name}: {answer.name}")
                if answer in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                    member.drop_partitions()
                return
            assignment = f", owns {self.scene.text(answer.assignment)}" if answer.assignment is not None else ""
            self.lines.append(f"  {member.name}: {answer.member_epoch}{assignment}")
            member.apply(answer)

        self.scene.send(heartbeat, on_response)

    # --- other steps -------------------------------------------------------------------------------------------------

    def _topic(self, name: str, partitions: str) -> None:
        self.scene.cluster.set_partition_count(name, int(partitions))

    def _wait(self, seconds: str) -> None:
        self.scene.advance(float(seconds))

    def _hold(self) -> None:
        self._holds_commits = True

    def _commit(self) -> None:
        self._holds_commits = False

    def _reject(self, code: str = "COORDINATOR_NOT_AVAILABLE") -> None:
        self.scene.log.reject(ErrorCode[code])

    def _fail_over(self) -> None:
        self._holds_commits = False
        self.scene.fail_over()

    def _show(self) -> None:
        state = self.scene.state
        self.lines.append(f"  {state.name.value} {state.epoch}, target of {state.target_epoch}")
        for member_id, member in state.members.items():
            progress = member.progress
            line = f"  {member_id}: {progress.epoch} {progress.state.name}, {self.scene.text(progress.assigned)}"
            if progress.pending_revocation:
                line += f", to revoke {self.scene.text(progress.pending_revocation)}"
            self.lines.append(f"{line}; target {self.scene.text(state.target.get(member_id, {}))}")


def check_transcript(story: str, **config: Any) -> None:
    """Execute the steps of a transcript (lines with ``>``) and compare their results (the lines below each).

    Topic ``t`` has four partitions. Writes are committed at once, except between ``hold`` and ``commit``.
    """
    lines = [line.rstrip() for line in story.strip("\n").splitlines()]
    transcript = Transcript(**config)
    for line in lines:
        if line.startswith("> "):
            transcript.execute(line[2:])
    transcript.scene.unload()
    assert transcript.scene.clock.getDelayedCalls() == [], "timers are still active"
    assert transcript.lines == lines, "\n".join(["actual transcript:", *transcript.lines])
