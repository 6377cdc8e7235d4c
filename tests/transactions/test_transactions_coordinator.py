"""Complete transactions with one coordinator: responses and log records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transactions_scene import ID, OFFSETS, P0, P1, E, Scene

from kreplica.errors import ErrorCode
from kreplica.transactions import Identity, ProducerResponse, TransactionsConfig
from kreplica.transactions.delayed_requests import WAIT_SECONDS
from kreplica.transactions.records import decode_value, encode_value


def test_transaction_commits_in_all_its_partitions():
    """EndTxn is answered when the decision is committed; the markers follow."""
    scene = Scene()
    producer = scene.begin()
    assert scene.add(producer, P0, P1) is E.NONE
    assert scene.add(producer, OFFSETS) is E.NONE
    scene.cluster.holds_requests = True
    assert scene.end(producer, commits=True).code is E.NONE
    assert scene.state == "PrepareCommit"
    scene.cluster.release()
    scene.settle()
    assert scene.state == "CompleteCommit"
    assert [scene.markers_in(key) for key in (P0, P1, OFFSETS)] == [[True]] * 3
    assert [len(body["markers"]) for _, body in scene.cluster.requests] == [1, 1], "one request per leader"
    scene.stop()


def test_no_response_before_the_commit():
    """No request is answered before its change is committed."""
    scene = Scene()
    scene.send_begin()
    scene.clock.advance(0)
    assert scene.answers == []
    scene.settle()
    producer = scene.answers.pop().identity
    for send in (
        lambda: scene.send_add(producer, P0),
        lambda: scene.send_end(producer, commits=False),
    ):
        send()
        assert scene.answers == []
        scene.log.commit()
        assert scene.answers.pop().code is E.NONE


def test_epochs_grow_with_each_transaction():
    """Each EndTxn returns the next epoch, and a repeated EndTxn returns the same one (KIP-890)."""
    scene = Scene()
    producer = scene.begin()
    for number in range(3):
        scene.add(producer, P0)
        following = scene.end(producer, commits=number % 2 == 0, grows=True).identity
        assert following == Identity(producer.producer_id, producer.epoch + 1)
        assert scene.end(producer, commits=number % 2 == 0, grows=True) == ProducerResponse(identity=following)
        producer = following
    assert scene.markers_in(P0) == [True, False, True]
    scene.stop()


def test_new_incarnation_aborts_the_open_transaction():
    """The new incarnation retries until the abort completes; the old one is fenced once the abort is decided."""
    scene = Scene()
    zombie = scene.begin()
    scene.add(zombie, P0)
    assert scene.response_to(scene.send_begin).code is E.CONCURRENT_TRANSACTIONS
    assert scene.markers_in(P0) == [False]
    new = scene.begin()
    assert new.epoch == zombie.epoch + 2
    assert scene.add(zombie, P1) is E.PRODUCER_FENCED
    assert scene.end(zombie, commits=True).code is E.PRODUCER_FENCED
    assert scene.end(zombie, commits=True, grows=True).code is E.PRODUCER_FENCED
    assert scene.coordinator.verify(ID, zombie, [P0]) == {P0: E.PRODUCER_FENCED}
    scene.stop()


def test_concurrent_requests_are_refused():
    """Concurrent requests get CONCURRENT_TRANSACTIONS; those of a fenced producer get PRODUCER_FENCED."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    scene.send_end(producer, commits=True)
    scene.send_end(producer, commits=False)
    scene.send_add(producer, P1)
    scene.send_begin()
    scene.send_add(Identity(producer.producer_id, producer.epoch - 1), P1)
    assert [answer.code for answer in scene.answers[-4:]] == [*[E.CONCURRENT_TRANSACTIONS] * 3, E.PRODUCER_FENCED]
    scene.settle()
    assert scene.state == "CompleteCommit"


class TestRequestsWhileMarkersAreWritten:
    """Requests are delayed until all markers are written."""

    def completing_scene(self) -> tuple[Scene, Identity]:
        scene = Scene()
        producer = scene.begin()
        scene.add(producer, P0)
        scene.cluster.holds_requests = True
        scene.end(producer, commits=True)
        scene.answers.clear()
        return scene, producer

    def test_requests_are_answered_afterwards(self):
        """AddPartitionsToTxn, InitProducerId and repeated EndTxn requests are delayed."""
        for send, code in (
            (lambda scene, producer: scene.send_add(producer, P1), E.NONE),
            (lambda scene, producer: scene.send_begin(producer), E.NONE),
            (lambda scene, producer: scene.send_end(producer, commits=True), E.NONE),
            (lambda scene, producer: scene.send_end(producer, commits=False), E.INVALID_TXN_STATE),
        ):
            scene, producer = self.completing_scene()
            send(scene, producer)
            scene.settle(0.1)
            assert [answer.code for answer in scene.answers] == ([] if code is E.NONE else [code])
            scene.cluster.release()
            scene.settle()
            assert [answer.code for answer in scene.answers] == [code]
            scene.stop()

    def test_abort_overtakes_a_delayed_request(self):
        """An abort that overtakes the delayed AddPartitionsToTxn gets a retriable error, never INVALID_TXN_STATE."""
        scene, producer = self.completing_scene()
        scene.send_add(producer, P1)
        scene.send_end(producer, commits=False)
        scene.settle(0.1)
        assert scene.answers == []
        scene.cluster.release()
        scene.settle()
        assert [answer.code for answer in scene.answers] == [E.CONCURRENT_TRANSACTIONS, E.NONE]
        assert scene.end(producer, commits=False).code is E.NONE
        scene.cluster.release()
        scene.settle()
        assert scene.markers_in(P1) == [False]
        scene.stop()

    def test_fenced_producer_does_not_wait(self):
        """A fenced producer gets its final error immediately."""
        scene, producer = self.completing_scene()
        scene.send_add(producer, P1)
        scene.send_end(Identity(producer.producer_id, producer.epoch - 1), commits=False)
        assert [answer.code for answer in scene.answers] == [E.PRODUCER_FENCED]
        scene.stop()

    def test_delayed_requests_time_out(self):
        """After the maximum delay, a delayed request gets a retriable error."""
        scene, producer = self.completing_scene()
        scene.send_add(producer, P1)
        scene.settle(WAIT_SECONDS + 0.05)
        assert [answer.code for answer in scene.answers] == [E.CONCURRENT_TRANSACTIONS]
        scene.stop()

    def test_delayed_requests_are_bounded(self):
        """The number of delayed requests is limited."""
        scene, producer = self.completing_scene()
        for _ in range(10):
            scene.send_add(producer, P1)
        assert [answer.code for answer in scene.answers] == [E.CONCURRENT_TRANSACTIONS] * 2
        scene.cluster.release()
        scene.settle()
        assert [answer.code for answer in scene.answers[2:]] == [*[E.CONCURRENT_TRANSACTIONS] * 7, E.NONE]
        scene.stop()

    def test_coordinator_changes(self):
        """Delayed requests get NOT_COORDINATOR."""
        scene, producer = self.completing_scene()
        scene.send_add(producer, P1)
        scene.fail_over()
        assert [answer.code for answer in scene.answers] == [E.NOT_COORDINATOR]
        scene.stop()


def test_concurrent_producers_get_two_identities():
    """The later of two concurrent InitProducerId requests fences the earlier one."""
    scene = Scene()
    scene.holds_ids = True
    scene.send_begin()
    scene.send_begin()
    scene.release_ids()
    assert [answer.code for answer in scene.answers] == [E.CONCURRENT_TRANSACTIONS], "the first one waits for the log"
    scene.settle()
    first = scene.answers[-1].identity
    second = scene.begin()
    assert second == Identity(first.producer_id, first.epoch + 1)


def test_coordinator_resigns_while_a_producer_id_is_allocated():
    """Leadership is checked again once the producer ID is allocated."""
    scene = Scene()
    scene.holds_ids = True
    scene.send_begin()
    scene.shards.error = ErrorCode.NOT_COORDINATOR
    scene.release_ids()
    assert [answer.code for answer in scene.answers] == [E.NOT_COORDINATOR]
    assert scene.records == []


def test_stopped_broker_refuses_requests():
    """Pending and later requests get NOT_COORDINATOR, and nothing more is written."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    scene.log.rejects = E.COORDINATOR_NOT_AVAILABLE
    scene.send_end(producer, commits=True)
    scene.log.reject()
    scene.stop()
    scene.send_end(producer, commits=True)
    assert [answer.code for answer in scene.answers[-2:]] == [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR]


def test_stop_answers_requests_that_wait_for_a_producer_id():
    """A request that waits for a producer ID is answered once."""
    scene = Scene()
    scene.holds_ids = True
    scene.send_begin()
    scene.stop()
    assert [answer.code for answer in scene.answers] == [E.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("code", [E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE])
def test_wrong_broker_refuses_every_request(code):
    """A broker that is not, or not yet, the coordinator refuses every request."""
    scene = Scene()
    producer = scene.begin()
    scene.shards.error = code
    assert scene.response_to(scene.send_begin).code is code
    assert scene.response_to(lambda: scene.send_add(producer, P0)).code is code
    assert scene.response_to(lambda: scene.send_end(producer, commits=True)).code is code
    assert scene.coordinator.verify(ID, producer, [P0]) == {P0: code}


def test_invalid_timeouts_are_refused():
    """Timeouts that are too long or not positive are refused; two-phase transactions have none."""
    scene = Scene(TransactionsConfig(timeout_ms_max=10_000, is_two_phase_enabled=True))
    for timeout_ms in (-1, 0, 10_001):
        answer = scene.response_to(lambda: scene.send_begin(timeout_ms=timeout_ms))  # noqa: B023
        assert answer.code is E.INVALID_TRANSACTION_TIMEOUT
    assert scene.begin(timeout_ms=10_000)
    assert scene.begin(timeout_ms=10_001, is_two_phase=True)


def test_two_phase_commit_needs_permission():
    """Permission is required because an abandoned transaction would stay open forever (KIP-939)."""
    scene = Scene(TransactionsConfig())
    for options in ({"is_two_phase": True}, {"keeps_prepared": True}):
        answer = scene.response_to(lambda: scene.send_begin(**options))  # noqa: B023
        assert answer.code is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allowed = Scene()
    assert allowed.response_to(lambda: allowed.send_begin(keeps_prepared=True)).code is E.INVALID_REQUEST


@pytest.mark.parametrize("commits", [True, False])
def test_prepared_transaction_is_ended_by_the_next_incarnation(commits):
    """After a crash between the phases, the next incarnation commits or aborts, at any coordinator."""
    scene = Scene()
    producer = scene.begin(is_two_phase=True)
    scene.add(producer, P0, P1)
    scene.fail_over()
    answer = scene.response_to(lambda: scene.send_begin(is_two_phase=True, keeps_prepared=True))
    assert answer.ongoing == producer
    scene.fail_over()
    scene.settle(100_000.0)
    assert scene.state == "Ongoing"
    assert scene.end(producer, commits=True, grows=True).code is E.PRODUCER_FENCED
    assert scene.end(answer.identity, commits=commits, grows=True).identity.epoch == answer.identity.epoch + 1
    assert scene.markers_in(P0) == scene.markers_in(P1) == [commits]
    scene.stop()


def test_last_epoch_is_followed_by_another_producer_id():
    """After the last epoch, a new producer ID is allocated before the response."""
    scene = Scene()
    producer = scene.begin()
    exhausted = Identity(producer.producer_id, 32766)
    key, value = scene.records[-1]
    scene.records.append((key, encode_value(replace(decode_value(ID, value or b""), producer_epoch=exhausted.epoch))))
    scene.fail_over()
    scene.add(exhausted, P0)
    following = scene.end(exhausted, commits=True, grows=True).identity
    assert following == Identity(scene.next_producer_id, 0)
    assert scene.end(exhausted, commits=True, grows=True).identity == following
    assert scene.cluster.markers[P0][0][:3] == (producer.producer_id, 32767, True)


def test_write_that_timed_out_is_repeated():
    """The producer gets an error, but the decision is final and is written again."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    scene.send_end(producer, commits=True)
    scene.log.time_out()
    assert scene.answers[-1].code is E.COORDINATOR_NOT_AVAILABLE
    for send in (lambda: scene.send_end(producer, commits=False), scene.send_begin):
        send()
        assert scene.answers[-1].code is E.CONCURRENT_TRANSACTIONS
    scene.clock.advance(0.5)
    assert len(scene.log.waiting) == 2, "it was written twice"
    scene.settle()
    assert scene.state == "CompleteCommit"
    assert scene.markers_in(P0) == [True]
    assert scene.end(producer, commits=True).code is E.NONE


def test_repeated_record_takes_effect_once():
    """The second commit of a repeated write has no effect."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    scene.send_end(producer, commits=True)
    scene.log.time_out()
    scene.clock.advance(0.5)
    scene.log.commit(1)
    scene.clock.advance(0)
    assert scene.markers_in(P0) == [True]
    scene.settle(1.0)
    assert scene.state == "CompleteCommit"
    assert scene.markers_in(P0) == [True]
    scene.stop()


def test_refused_write_is_repeated():
    """A write that is refused for too few in-sync replicas is repeated until it succeeds."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    scene.log.rejects = E.COORDINATOR_NOT_AVAILABLE
    scene.send_end(producer, commits=True)
    for _ in range(5):
        scene.log.reject()
        scene.clock.advance(0.5)
    assert scene.answers[-1].code is E.COORDINATOR_NOT_AVAILABLE
    assert scene.markers_in(P0) == []
    scene.log.rejects = None
    scene.log.reject()
    scene.clock.advance(0.5)
    scene.settle()
    assert scene.state == "CompleteCommit"
    scene.stop()


def test_oversized_record_changes_nothing():
    """Partitions that do not fit into the record are refused, and the transaction continues without them."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    scene.log.rejects = E.MESSAGE_TOO_LARGE
    scene.send_add(producer, P1)
    scene.log.reject()
    assert scene.answers[-1].code is E.UNKNOWN_SERVER_ERROR
    scene.log.rejects = None
    assert scene.end(producer, commits=True).code is E.NONE
    assert (scene.markers_in(P0), scene.markers_in(P1)) == ([True], [])


def test_log_has_one_record_per_transition():
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    scene.end(producer, commits=False)
    states = [decode_value(ID, value).state.title for _, value in scene.records if value is not None]
    assert states == ["Empty", "Ongoing", "PrepareAbort", "CompleteAbort"]
