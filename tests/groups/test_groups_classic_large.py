"""Groups with hundreds of members."""

from __future__ import annotations

import sys
import time
from functools import partial
from types import FrameType
from typing import Any

import pytest
from classic_scene import GROUP, ClassicScene, join_request

from kreplica.errors import ErrorCode
from kreplica.groups.classic.requests import JoinResponse, Leave, Sync, SyncResponse

PROCESSOR_SECONDS_MAX = 1.0


class Crowd:
    """Hundreds of members that follow the protocol."""

    def __init__(self, scene: ClassicScene, size: int) -> None:
        self.scene = scene
        self.size = size
        self.joined: dict[int, JoinResponse] = {}
        self.synced: dict[int, SyncResponse] = {}

    def join(self, *indexes: int) -> None:
        for index in indexes:
            member_id = self.joined[index].member_id if index in self.joined else ""
            request = join_request(member_id, client_id=f"member {index}", requires_known_member=True)
            self.scene.coordinator.join(GROUP, request, partial(self._joined, index))

    def _joined(self, index: int, joined: JoinResponse) -> None:
        self.joined[index] = joined
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.join(index)

    def sync(self) -> None:
        self.synced = {}
        for index, joined in self.joined.items():
            assignments = [(member.member_id, member.member_id.encode()) for member in joined.members]
            sync = Sync(joined.generation, joined.member_id, assignments=assignments)
            self.scene.coordinator.sync(GROUP, sync, partial(self.synced.__setitem__, index))
        self.scene.log.commit()

    def beat(self) -> set[ErrorCode]:
        return {
            self.scene.coordinator.heartbeat(GROUP, joined.member_id, None, joined.generation)
            for joined in self.joined.values()
        }

    def rebalance(self) -> None:
        self.join(*range(self.size))
        self.scene.advance(6)
        assert {joined.error for joined in self.joined.values()} == {ErrorCode.NONE}
        assert len({joined.generation for joined in self.joined.values()}) == 1
        assert sorted(len(joined.members) for joined in self.joined.values()) == [0] * (self.size - 1) + [self.size]
        self.sync()
        assert {index: synced.assignment.decode() for index, synced in self.synced.items()} == {
            index: joined.member_id for index, joined in self.joined.items()
        }


def test_rebalance_of_two_hundred_members() -> None:
    """Rebalances and heartbeats of 200 members take less than a second of CPU time."""
    scene = ClassicScene(initial_rebalance_delay_ms=3000)
    crowd = Crowd(scene, 200)
    began = time.process_time()
    crowd.rebalance()
    for _ in range(3):
        scene.advance(3)
        assert crowd.beat() == {ErrorCode.NONE}
    crowd.size = 201
    crowd.join(200)
    # The new member has received its ID, but no generation yet.
    assert crowd.beat() == {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
    crowd.join(*range(200))
    crowd.sync()
    assert len(crowd.synced) == 201
    assert time.process_time() - began < PROCESSOR_SECONDS_MAX


def test_request_cost_is_linear_in_the_number_of_members() -> None:
    """The number of executed lines grows linearly with the number of members."""

    def count_lines(size: int) -> int:
        crowd = Crowd(ClassicScene(initial_rebalance_delay_ms=3000), size)
        line_count = 0

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal line_count
            if "kreplica/groups/" not in frame.f_code.co_filename:
                return None
            line_count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            crowd.rebalance()
            crowd.join(*crowd.joined)
            crowd.sync()
        finally:
            sys.settrace(before)
        return line_count

    assert count_lines(800) < 8.5 * count_lines(100)


def test_heartbeats_create_no_timers() -> None:
    """A member has one timer, which heartbeats rarely reschedule."""
    scene = ClassicScene(initial_rebalance_delay_ms=0)
    crowd = Crowd(scene, 50)
    crowd.rebalance()
    started = 0
    call_later = scene.clock.callLater

    def counting(*args, **kwargs):  # type: ignore[no-untyped-def]
        nonlocal started
        started += 1
        return call_later(*args, **kwargs)

    scene.clock.callLater = counting  # type: ignore[method-assign]
    for _ in range(200):
        scene.advance(1)
        assert crowd.beat() == {ErrorCode.NONE}
    assert len(scene.group.roster.members) == 50
    # With sessions of ten seconds, a member starts about 20 timers during its 200 heartbeats.
    assert started <= 50 * 25


@pytest.mark.parametrize("leaver", [0, 100, 199])
def test_one_of_many_members_leaves(leaver: int) -> None:
    """When any member leaves, whether leader or follower, the others share its partitions."""
    scene = ClassicScene(initial_rebalance_delay_ms=0)
    crowd = Crowd(scene, 200)
    crowd.rebalance()
    removed = crowd.joined.pop(leaver)
    assert scene.coordinator.leave(GROUP, [Leave(removed.member_id)]) == [ErrorCode.NONE]
    crowd.join(*crowd.joined)
    crowd.sync()
    assert len({synced.assignment for synced in crowd.synced.values()}) == 199
