"""Controller requests forged by a client are rejected, and do not fence the real controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from kreplica.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Api
from tests.support.broker_scene import Row, Scene, batch, on_broker

STALE_CONTROLLER_EPOCH = 11
EPOCH_MAX = 2**31 - 1


def deletion() -> Row:
    row = {"partition_index": 0, "leader_epoch": EPOCH_MAX, "delete_partition": True}
    return {"topic_states": [{"topic_name": "t", "partition_states": [row]}]}


def leadership() -> Row:
    row = {
        "partition_index": 0,
        "controller_epoch": EPOCH_MAX,
        "leader": 9,
        "leader_epoch": EPOCH_MAX,
        "isr": [9],
        "partition_epoch": 0,
        "replicas": [9],
        "is_new": False,
    }
    return {"topic_states": [{"topic_name": "t", "partition_states": [row]}], "live_leaders": []}


def elsewhere() -> Row:
    endpoint = {"port": 6666, "host": "elsewhere.example", "listener": "PLAINTEXT", "security_protocol": 0}
    return {"topic_states": [], "live_brokers": [{"id": 1, "endpoints": [endpoint], "rack": None}]}


FORGED = [(STOP_REPLICA, deletion()), (LEADER_AND_ISR, leadership()), (UPDATE_METADATA, elsewhere())]


@pytest.mark.parametrize(("api", "body"), FORGED, ids=[api.name for api, _ in FORGED])
def test_requests_of_a_controller_that_was_not_elected_are_refused(tmp_path: Path, api: Api, body: Row) -> None:
    """Neither the highest epoch nor the current epoch with another broker ID works, while the real controller's
    requests still do."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        await scene.produce("t", batch(b"x"))
        fence = scene.broker.fence
        known = fence.controller_id, fence.controller_epoch
        for controller_id, epoch in ((1, EPOCH_MAX), (1, known[1] + 1), (9, known[1]), (9, EPOCH_MAX)):
            names = {"controller_id": controller_id, "controller_epoch": epoch, "broker_epoch": fence.broker_epoch}
            answer = await scene.ask(api, names | body)
            assert answer["error_code"] == STALE_CONTROLLER_EPOCH, names
        assert (fence.controller_id, fence.controller_epoch) == known
        assert (await scene.produce("t", batch(b"y")))["error_code"] == 0
        await scene.make_topic("made by the real controller".replace(" ", "-"))
        ports = {each.port for live in scene.broker.metadata.brokers.values() for each in live.endpoints.values()}
        assert ports == {scene.broker.port}

    on_broker(tmp_path, scenario)
