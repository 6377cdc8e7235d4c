"""Each fault that storms inject is named by an explanation or the timeline, or is listed here with a reason why not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import pytest
from direct_calls import DirectCluster
from twisted.internet.defer import Deferred

from kreplica.testing.cluster.health_check import wait_until_health_agrees
from kreplica.testing.storms.faults import APPLICATION_FAULTS, ENSEMBLE_FAULTS, FAULTS, SECURITY_FAULTS
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.replicated_run import ReplicatedRun

ATTEMPTS_MAX = 10
"""Maximum number of attempts to inject a fault with a lasting effect: some choices do not hit a suitable broker."""

SECONDS_MAX = 40
"""Maximum virtual time until the fault is named."""

NOT_REGISTERED = "is not registered"
NO_ZOOKEEPER = "has no connection to ZooKeeper"
SILENT = "does not respond"
FULL = "is full"

NAMED = {
    "kill": NOT_REGISTERED,
    "lose power": NOT_REGISTERED,
    "stop": NOT_REGISTERED,
    "kill one by one": NOT_REGISTERED,
    "interrupt controller": NOT_REGISTERED,
    "pause": SILENT,
    "pause and kill": SILENT,
    "pause at election": SILENT,
    "bounce": "registered again|joined|left|restarted",
    "bounce repeatedly": "registered again|joined|left|restarted",
    "rolling restart": "requested a controlled shutdown",
    "expire session": "session",
    "depose controller": "is no longer the controller",
    "restart ZooKeeper": NO_ZOOKEEPER,
    "isolate ZooKeeper": NO_ZOOKEEPER,
    "cut from ZooKeeper": NO_ZOOKEEPER,
    "isolate": NO_ZOOKEEPER,
    "cut brokers": "cannot fetch",
    "half-open connections": "cannot fetch",
    "run out of space": FULL,
    "run out of space everywhere": FULL,
    "fill a follower": FULL,
    "fail to sync": r"failed \(EIO",
    "fail to read": "damaged",
    "flip a bit": "cannot use",
    "run out of descriptors": "EMFILE",
    "slow disk": "in the last minute",
    "reassign": "reassignment",
    "move leaders": "new leader",
}
"""Pattern of the sentence that names each fault."""

MOMENTARY = "it lasts for a moment, and clients and brokers connect again"
OPERATION = "an operation of an administrator, which the timeline lists; tests/admin/test_admin_timeline.py"
LATE = "messages are late, but nothing fails; a replica that falls behind is named as such"
NOT_NAMED = {
    "kill all": "no broker is left to ask",
    "cut from client": "brokers cannot know of a client that does not reach them",
    "drop connections": MOMENTARY,
    "delay watches": LATE,
    "delay network": LATE,
    "limit throughput": LATE,
    "late segments": LATE,
    "clock jump": "no guarantee depends on wall clocks",
    "clock drift": "no guarantee depends on wall clocks",
    "read everything": "a reader, not a fault",
    "watch end": "a reader, not a fault",
    **dict.fromkeys(
        ("create topic", "delete topic", "replace topic", "grow topic", "shrink topic", "replace partition"), OPERATION
    ),
    "change settings": OPERATION,
    "elect": OPERATION,
    **dict.fromkeys(APPLICATION_FAULTS, "applications and their groups; tests/admin/test_admin_why.py"),
    **dict.fromkeys(ENSEMBLE_FAULTS, "another server takes over; a broker without any is in NAMED"),
    **dict.fromkeys(SECURITY_FAULTS, "why access and why client; tests/security/test_security_acl_explanations.py"),
}


def test_every_fault_is_listed():
    """Every fault has a pattern of the sentence that names it, or a reason why no broker can name it."""
    injected = {*FAULTS, *APPLICATION_FAULTS, *ENSEMBLE_FAULTS, *SECURITY_FAULTS}
    assert NAMED.keys() | NOT_NAMED.keys() == injected
    assert not NAMED.keys() & NOT_NAMED.keys()


class Storm:
    """A cluster under load, and its admin APIs."""

    def __init__(self) -> None:
        self.run = ReplicatedRun(7, brokers=3, partitions=3)
        self.apis = DirectCluster(self.run.cluster)
        self.attempts = 0
        self.started_ms = 0

    def sentences(self) -> Iterator[str]:
        """Yield all sentences about faults from all brokers."""
        cluster = self.run.cluster
        responsive = [n for n, machine in cluster.brokers.items() if machine.running and not machine.host.is_paused]
        for number in responsive:
            api = self.apis[number]
            cluster.run_until(Deferred.fromCoroutine(self.apis.watches[number].check()))
            for broker in cluster.brokers:
                yield api.document("GET", f"/v1/why/brokers/{broker}")["summary"]
            for entry in api.document("GET", "/v1/timeline")["entries"]:
                if entry["at_ms"] >= self.started_ms:
                    yield entry["text"]

    def begin(self, name: str) -> Iterator[End | None]:
        """Yield the function that ends the fault, after injecting it; each further item is another attempt."""
        self.started_ms = self.run.machine(1).host.clock.now_ms()
        begin, _ = FAULTS[name]
        for _ in range(ATTEMPTS_MAX):
            self.attempts += 1
            end = begin(self.run, Random(f"{name}/{self.attempts}"))
            yield end

    def settle(self) -> None:
        self.run.network.heal()
        self.run.start_all()
        self.run._wait_undamaged()
        self.run.settle()


@pytest.fixture(scope="module")
def storm() -> Storm:
    return Storm()


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMED)
def test_a_fault_is_named(storm, name):
    """A fault is named and ends, and the figures of all brokers agree during the fault and after it."""
    words = NAMED[name]
    for end in storm.begin(name):
        until_s = storm.run.cluster.simulation.now_s + SECONDS_MAX
        found = False
        while not found and storm.run.cluster.simulation.now_s < until_s:
            found = any(re.search(words, sentence) for sentence in storm.sentences())
            if not found:
                storm.run.cluster.run(1)
        if end is not None:
            end()
        storm.settle()
        if found:
            break
    assert found, f"no broker says {words!r}"
    wait_until_health_agrees(storm.run.cluster)
