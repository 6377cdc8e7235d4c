"""Validation of ``docs/how-to/why.md``: each example is a broker's response in the described situation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from why_scenes import Members, Scene

from kreplica.model import TopicPartition
from kreplica.testing.simulator.simulation import DATA_DIRECTORY

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "why.md"
SHOWN = re.compile(r"`GET (/v1/why/[^`]+)`[^`]*```json\n(.*?)```", re.DOTALL)

ORDERS = TopicPartition("orders", 0)


def without_leader():
    scene = Scene()
    scene.kill(3)
    scene.produce(1)
    scene.cluster.brokers[2].kill()
    scene.run(scene.cluster.brokers[3].start(), 120.0)
    scene.cluster.run(20)
    return scene.why(via=3)


def too_few_in_sync():
    scene = Scene(configs={"min.insync.replicas": "2"})
    scene.kill(3)
    return scene.why()


def moving():
    scene = Scene()
    for _ in range(6):
        scene.produce(500)
    scene.move(throttle_bytes_per_second=1000)
    scene.cluster.run(5)
    return scene.why()


def plan():
    scene = Scene()
    for _ in range(6):
        scene.produce(500)
    plan_id = scene.move(throttle_bytes_per_second=1000)
    scene.cluster.run(5)
    return scene.why(f"plans/{plan_id}")


def rebalancing():
    scene = Members()
    _, joined = scene.join("app-1", session_timeout_ms=20_000, rebalance_timeout_ms=15_000)
    scene.run(joined, 120.0)
    scene.join("app-2", session_timeout_ms=20_000, rebalance_timeout_ms=15_000)
    scene.cluster.run(3)
    return scene.why("groups/readers", via=3)


def waiting_for_a_partition():
    scene = Members()
    producer = scene.transactional_producer("payments")
    member, joined = scene.join("app-1", session_timeout_ms=60_000)
    scene.run(joined, 120.0)
    scene.run(member.commit({ORDERS: 0}))
    scene.run(producer.begin())
    scene.run(producer.send(ORDERS, [b"kept back"]))
    return scene.why("groups/readers")


def full_disk():
    scene = Scene()
    disk = scene.cluster.brokers[2].host.disk
    total, free = disk.usage(DATA_DIRECTORY)
    disk.capacity_bytes = total - free
    scene.why("brokers/2")
    scene.cluster.run(2)
    return scene.why("brokers/2")


def stalling():
    scene = Scene()
    scene.apis.stall(2, "DeleteTopics v5 (2000000 bytes) from client 'cleaner' at 10.0.0.7:51234", 0.24)
    return scene.why("brokers/2")


EXAMPLES = {
    "a partition without a leader": without_leader,
    "too few in sync": too_few_in_sync,
    "a partition that moves": moving,
    "a plan": plan,
    "a rebalancing group": rebalancing,
    "a group that is held up": waiting_for_a_partition,
    "a broker with a full disk": full_disk,
    "a broker that was blocked": stalling,
}
"""Functions that return the explanations, in the order of the page."""


def normalized(document):
    """Replace values that differ between runs, and remove facts, which the page omits."""
    text = json.dumps({name: value for name, value in document.items() if name not in ("facts", "problems")})
    for pattern, replacement in (
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "2026-03-01 17:02:09 UTC"),
        (r'"at_ms": \d+', '"at_ms": 1772384529000'),
        (r"(member|Member) \S+ \(client (\S+) at [^)]+\)", r"\1 \2-51e2 (client \2 at 10.0.0.7)"),
        (r"it has [\d,]+ bytes of [\d,]+ bytes", "it has 1,001,730 bytes of 3,005,190 bytes"),
        (r"producer ID \d+", "producer ID 7"),
        (r"broker \d coordinates", "broker 1 coordinates"),
    ):
        text = re.sub(pattern, replacement, text)
    return json.loads(text)


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=list(EXAMPLES))
def test_page_shows_responses_of_a_broker(number):
    """Each example on the page equals the broker's response, except for times, IDs and sizes."""
    shown = SHOWN.findall(PAGE.read_text())
    assert len(shown) == len(EXAMPLES)
    path, text = shown[number]
    said = normalized(list(EXAMPLES.values())[number]())
    assert json.loads(text) == said, json.dumps(said, indent=2)
    kind, _, name = path.removeprefix("/v1/why/").partition("/")
    assert said["subject"] == f"{kind.removesuffix('s')} {name.replace('/0', '-0')}"
