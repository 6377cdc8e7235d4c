"""What a broker could not delete is tried again."""

import random
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.controller.context import ControllerContext
from kreplica.controller.events import ReplicasStopped, RetryDeletions
from kreplica.controller.figures import Counters
from kreplica.controller.office import Office
from kreplica.controller.replica_deletion import DELETION_RETRY_SECONDS, replicas_stopped, resume_deletions
from kreplica.controller.states import PartitionState, ReplicaState
from kreplica.controller.surroundings import ControllerConfig, Surroundings
from kreplica.errors import ErrorCode
from kreplica.model import BrokerRegistration, LeaderAndIsr, TopicAssignment, TopicPartition
from kreplica.runtime import Runtime

KEY = TopicPartition("t", 0)


def test_a_refused_deletion_is_tried_again_after_a_while():
    """A broker that could not remove the files is asked anew, first to stop and then to delete, without a restart."""
    clock, events, sent = Clock(), [], []
    context = ControllerContext(3, 3)
    context.brokers[1] = BrokerRegistration(1, (), epoch=7)
    context.topics["t"] = TopicAssignment("t", UUID(int=5), {0: (1,)})
    context.leadership[KEY] = LeaderAndIsr(1, 0, (1,), 3)
    context.deleting.add("t")
    context.move_partition(KEY, PartitionState.NEW)
    for state in (ReplicaState.NEW, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED):
        context.move_replica(KEY, 1, state)
    runtime = Runtime(clock, None, None, random.Random(1), lambda: 0)
    config = ControllerConfig(1, "PLAINTEXT", lambda _: False)
    office = Office(Surroundings.real(runtime, None, config), context, events.append, Counters())
    office._send = lambda broker, command: sent.append((broker, command.api.name, command.delete))

    refused = ReplicasStopped(1, True, ((KEY, ErrorCode.KAFKA_STORAGE_ERROR),))
    for _ in range(2):
        replicas_stopped(office, refused)
    assert context.replica_state(KEY, 1) is ReplicaState.DELETION_INELIGIBLE
    assert sent == []
    clock.advance(DELETION_RETRY_SECONDS)
    assert events == [RetryDeletions()]

    resume_deletions(office, {1})
    assert sent == [(1, "StopReplica", False)]
    replicas_stopped(office, ReplicasStopped(1, False, ((KEY, ErrorCode.NONE),)))
    assert sent[1:] == [(1, "StopReplica", True)]
    assert context.replica_state(KEY, 1) is ReplicaState.DELETION_STARTED
    assert clock.getDelayedCalls() == []


def test_a_resigned_controller_leaves_no_timer():
    """What would have been tried again is the next controller's."""
    clock, events = Clock(), []
    runtime = Runtime(clock, None, None, random.Random(1), lambda: 0)
    office = Office(
        Surroundings.real(runtime, None, ControllerConfig(1, "PLAINTEXT", lambda _: False)),
        ControllerContext(1, 1),
        events.append,
        Counters(),
    )
    office.put_later(RetryDeletions(), 10)
    Deferred.fromCoroutine(office.close())
    clock.advance(20)
    assert events == []
    assert clock.getDelayedCalls() == []
