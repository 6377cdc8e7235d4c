"""Responses and records are consistent under random schedules of producers, log, partitions and coordinators."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest
from transactions_scene import ID, P0, P1, P2, E, Marker, Scene

from kreplica.model import TopicPartition
from kreplica.transactions import EndRequest, Identity, InitRequest, ProducerResponse, Transaction
from kreplica.transactions.records import decode_value
from kreplica.transactions.states import COMPLETE, DECIDED, PREVIOUS, S

SEEDS = range(120)
STEPS = 200
TIMEOUT_MS = 15_000


class CheckedScene(Scene):
    """Checks every marker, record and response."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.granted: list[Identity] = []
        self.marked_partitions: dict[TopicPartition, None] = {}
        self.checked_count = 0
        self.acknowledged_ends = 0
        self.decided: list[bool] = []
        self.cluster.holds_requests = True
        append = self.cluster._append

        def checked_append(key: TopicPartition, marker: Marker) -> E:
            self.check_log()
            code = append(key, marker)
            if code is E.NONE:
                self.check_marker(key, marker)
            return code

        self.cluster._append = checked_append  # type: ignore[method-assign]

    # --- invariants --------------------------------------------------------------------------------------------------

    def logged_transaction(self) -> Transaction | None:
        return decode_value(ID, self.records[-1][1] or b"") if self.records else None

    def check_marker(self, key: TopicPartition, marker: Marker) -> None:
        last = self.logged_transaction()
        assert last is not None
        assert last.state in DECIDED, f"{marker} of {last}"
        assert (marker.commits, marker.producer_id, marker.epoch) == (last.is_committed, *last.identity)
        assert key in last.partitions
        self.marked_partitions[key] = None

    def check_log(self) -> None:
        """Check that transitions are valid and that completed transactions have all markers."""
        while self.checked_count < len(self.records):
            new = decode_value(ID, self.records[self.checked_count][1] or b"")
            old = decode_value(ID, self.records[self.checked_count - 1][1] or b"") if self.checked_count else None
            self.checked_count += 1
            if old is None or new.state is old.state is not S.ONGOING:
                assert old is None or new.state is S.EMPTY or new == old, f"invalid transition from {old} to {new}"
                continue
            through_fence = (old.state, new.state) == (S.ONGOING, S.PREPARE_ABORT)
            assert through_fence or old.state in PREVIOUS[new.state], f"invalid transition from {old} to {new}"
            if new.state in COMPLETE:
                assert set(self.marked_partitions) == set(old.partitions), (
                    f"{old} has markers in {list(self.marked_partitions)} only"
                )
                self.marked_partitions.clear()
                self.decided.append(new.state is S.COMPLETE_COMMIT)

    def check_begin(self, claimed: Identity, answer: ProducerResponse) -> None:
        if answer.code is not E.NONE:
            return
        is_repeated = claimed.producer_id >= 0 and answer.identity == self.granted[-1]
        assert is_repeated or answer.identity not in self.granted, "an identity was assigned twice"
        if not is_repeated:
            self.granted.append(answer.identity)

    def check_add(self, claimed: Identity, answer: ProducerResponse) -> None:
        if answer.code is E.NONE:
            assert claimed == self.granted[-1], f"{claimed} was not fenced by {self.granted[-1]}"

    def check_end(self, claimed: Identity, commits: bool, grows: bool, answer: ProducerResponse) -> None:
        if answer.code is not E.NONE:
            return
        self.check_log()
        last = self.logged_transaction()
        assert last is not None
        assert last.state in ((S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if commits else (S.PREPARE_ABORT, S.COMPLETE_ABORT))
        self.acknowledged_ends += 1
        if not grows:
            assert claimed == self.granted[-1]
        elif answer.identity != self.granted[-1]:
            assert claimed == self.granted[-1], f"{claimed} was not fenced by {self.granted[-1]}"
            assert answer.identity not in self.granted
            self.granted.append(answer.identity)

    # --- steps -------------------------------------------------------------------------------------------------------

    def choose_producer(self) -> Identity:
        """Return the last producer in most cases, otherwise an earlier one."""
        return self.granted[-1] if self.random.random() < 0.8 else self.random.choice(self.granted[-3:])

    def step(self) -> None:
        self.random.choices(
            (self._begin, self._add, self._end, self._log, self._partitions, self._time, self._fail_over),
            (0.3, 4, 3, 12, 8, 2, 0.3),
        )[0]()
        self.check_log()

    def _begin(self) -> None:
        claimed = self.choose_producer() if self.random.random() < 0.4 else Identity(-1, -1)
        self._send_begin(claimed)

    def _send_begin(self, claimed: Identity) -> None:
        keeps = claimed == (-1, -1) and self.random.random() < 0.5
        request = InitRequest(TIMEOUT_MS, claimed, is_two_phase=keeps, keeps_prepared=keeps)
        self.coordinator.begin(ID, request, partial(self.check_begin, claimed))

    def _add(self) -> None:
        claimed = self.choose_producer()
        keys = self.random.sample((P0, P1, P2), self.random.randint(1, 3))
        self.coordinator.add(ID, claimed, keys, lambda code: self.check_add(claimed, ProducerResponse(code)))

    def _end(self) -> None:
        claimed = self.choose_producer()
        commits, grows = self.random.random() < 0.6, self.random.random() < 0.6
        self.coordinator.end(ID, EndRequest(claimed, commits, grows), partial(self.check_end, claimed, commits, grows))

    def _log(self) -> None:
        chance = self.random.random()
        if chance < 0.04:
            self.log.rejects = E.COORDINATOR_NOT_AVAILABLE
        elif chance < 0.15:
            self.log.time_out()
        elif chance > 0.6:
            self.log.rejects = None
        self.log.reject()
        self.log.commit(self.random.choice((1, None, None)))

    def _partitions(self) -> None:
        if self.random.random() < 0.2:
            self.cluster.moved[self.random.choice((P0, P1, P2))] = 1
        self.clock.advance(0)
        self.cluster.release(self.random.choice((1, None, None)), lose_response=self.random.random() < 0.15)

    def _time(self) -> None:
        self.clock.advance(self.random.choice((0, 0.1, 0.5, 0.5, 11.0)))

    def _fail_over(self) -> None:
        self.cluster.release()
        self.fail_over(survives=self.random.random() < 0.5)

    def stop_all_faults(self) -> None:
        """Stop all faults; afterwards, every transaction is decided in all partitions."""
        self.log.rejects = None
        self.cluster.holds_requests = False
        for _ in range(4):
            self.log.reject()
            self.cluster.release()
            self.settle(30.0)
        self.check_log()


def run(seed: int) -> CheckedScene:
    scene = CheckedScene(seed)
    scene._send_begin(Identity(-1, -1))
    scene.log.commit()
    for _ in range(STEPS):
        scene.step()
    scene.stop_all_faults()
    return scene


@pytest.mark.parametrize("seeds", [SEEDS[start::3] for start in range(3)], ids=["first", "second", "third"])
def test_responses_match_the_log(seeds: Any) -> None:
    """Markers match the decision, completion implies all markers, and fenced producers are rejected."""
    decided: list[bool] = []
    acknowledged_ends = 0
    for seed in seeds:
        try:
            scene = run(seed)
            last = scene.logged_transaction()
            assert last is None or last.timeout_ms > TIMEOUT_MS or last.state not in (*DECIDED, S.ONGOING), last
            scene.stop()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        decided += scene.decided
        acknowledged_ends += scene.acknowledged_ends
    assert decided.count(True) > 50
    assert decided.count(False) > 50
    assert acknowledged_ends > 100
