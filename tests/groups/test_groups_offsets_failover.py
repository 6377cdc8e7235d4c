"""Committed offsets survive the loss of their coordinator."""

from __future__ import annotations

import pytest
from offsets_wire import GROUPS_PARTITIONS, WireScene, fetch_body, topics_of, wire_scene
from twisted.internet.defer import Deferred

from kreplica.cluster.topic_names import CONSUMER_OFFSETS
from kreplica.errors import ErrorCode
from kreplica.runtime.pause import pause
from kreplica.testing.clients.coordinator_client import first_error
from kreplica.wire import messages

PAUSE_S = 0.1


def coordinator_of(scene: WireScene, group: str) -> int:
    return scene.cluster.leader_of(CONSUMER_OFFSETS, scene.shard(group).log.partition)


def request(scene: WireScene, group: str, api: messages.Api, body: dict[str, object]) -> dict[str, object]:
    """Repeat a request until a coordinator answers, as consumers do."""
    return scene.cluster.run_until(scene.client(group).request_with_retries(api, body)).body


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_offsets_survive_their_coordinator(end: str) -> None:
    """Acknowledged offsets survive a crash and a controlled shutdown of the coordinator."""
    with wire_scene(brokers=3) as scene:
        for offset in (4, 5):
            commit = {
                "group_id": "g",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": topics_of({"t": {0: (offset, "m", 1)}, "u": {1: 7}}),
            }
            request(scene, "g", messages.OFFSET_COMMIT, commit)
        first = coordinator_of(scene, "g")
        scene.cluster.wait_in_sync(CONSUMER_OFFSETS, range(GROUPS_PARTITIONS))
        machine = scene.cluster.brokers[first]
        if end == "kill":
            machine.kill()
        else:
            scene.cluster.run_until(machine.stop())
        answer = request(scene, "g", messages.OFFSET_FETCH, fetch_body("g", None))
        rows = [
            (topic["name"], row["partition_index"], row["committed_offset"], row["metadata"])
            for topic in answer["groups"][0]["topics"]
            for row in topic["partitions"]
        ]
        assert rows == [("t", 0, 5, "m"), ("u", 1, 7, "")]
        assert coordinator_of(scene, "g") != first


def test_broker_that_is_not_the_coordinator_refuses() -> None:
    """A broker that is not the coordinator answers all group requests with NOT_COORDINATOR."""
    with wire_scene(brokers=2) as scene:
        scene.commit("g", {"t": {0: 5}})
        other = next(number for number in (1, 2) if number != coordinator_of(scene, "g"))
        client = scene.cluster.client(broker=other)
        requests = [
            (messages.OFFSET_FETCH, fetch_body("g", {"t": [0]}), range(1, 10)),
            (
                messages.OFFSET_COMMIT,
                {
                    "group_id": "g",
                    "generation_id_or_member_epoch": -1,
                    "member_id": "",
                    "topics": topics_of({"t": {0: 6}}),
                },
                range(1, 10),
            ),
            (messages.OFFSET_DELETE, {"group_id": "g", "topics": []}, [0]),
        ]
        for api, body, versions in requests:
            for version in versions:
                answer = scene.request(client, api, body, version)
                assert first_error(answer) is ErrorCode.NOT_COORDINATOR, (api.name, version)
        scene.cluster.run_until(client.close())


class CommittingConsumer:
    """A simple consumer that commits increasing offsets."""

    def __init__(self, scene: WireScene, number: int) -> None:
        self.group = f"committing-{number}"
        self.acknowledged = 0
        self.attempted = 0
        self.stopping = False
        self._client = scene.client(self.group)

    async def run(self) -> None:
        while not self.stopping:
            self.attempted += 1
            commit = {
                "group_id": self.group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": topics_of({"t": {0: self.attempted}}),
            }
            await self._client.request_with_retries(messages.OFFSET_COMMIT, commit)
            self.acknowledged = self.attempted
            answer = (
                await self._client.request_with_retries(messages.OFFSET_FETCH, fetch_body(self.group, {"t": [0]}))
            ).body
            found = answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"]
            # The outcome of an earlier attempt may be unknown, but it has the same offset.
            assert found == self.acknowledged, f"{self.group}: found {found}, acknowledged {self.acknowledged}"
            await pause(self._client.reactor, PAUSE_S)


@pytest.mark.parametrize("seed", range(3))
def test_no_acknowledged_offset_is_lost(seed: int) -> None:
    """While brokers die one after another, each client reads its last committed offset."""
    with wire_scene(brokers=3, seed=seed) as scene:
        scene.client("first")
        scene.cluster.wait_in_sync(CONSUMER_OFFSETS, range(GROUPS_PARTITIONS))
        clients = [CommittingConsumer(scene, number) for number in range(6)]
        runs = [Deferred.fromCoroutine(client.run()) for client in clients]
        for turn in range(4):
            scene.cluster.run(1)
            machine = scene.cluster.brokers[1 + (seed + turn) % 3]
            machine.kill()
            scene.cluster.run(3)
            scene.cluster.run_until(machine.start())
            scene.cluster.wait_in_sync(CONSUMER_OFFSETS, range(GROUPS_PARTITIONS))
        for client in clients:
            client.stopping = True
        for each in runs:
            scene.cluster.run_until(each)
        assert min(client.acknowledged for client in clients) > 10
