"""Plans in the REST API: dry run, creation, listing, change and cancellation, and the resulting znode writes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from direct_calls import DirectCluster
from jsonschema import ValidationError
from twisted.internet.defer import Deferred

from kreplica.admin.http.problems import Problem
from kreplica.cluster import znodes
from kreplica.cluster.cordons import decode_cordon
from kreplica.cluster.plans import documents
from kreplica.cluster.plans.plan import Action, PlanProgress, PlanState, Step, StepOutcome, StepState
from kreplica.errors import KafkaError
from kreplica.testing.cluster.cluster import SimulatedCluster
from tests.support.broker_scene import batch

CONTROLLER_BROKER = 1


class Scene:
    """A cluster; requests go to broker 2, which is not the controller, and no controller runs the plans."""

    def __init__(self, brokers=3):
        self.cluster = SimulatedCluster(seed=1, brokers=brokers)
        self.cluster.start()
        client = self.cluster.client()
        self.run(client.create_topic("orders", 4, replication_factor=2))
        self.cluster.wait_in_sync("orders", range(4))
        self.cluster.run(2)
        broker = self.broker = self.cluster.brokers[2].program
        self.zookeeper = broker.client
        self.api = DirectCluster(self.cluster)[2]

    def run(self, goal):
        return self.cluster.run_until(goal)

    def data(self, path):
        return self.run(self.zookeeper.get_data(path))[0]

    def set(self, path, data):
        self.run(self.zookeeper.set_data(path, data))

    def problem(self, *request, **more):
        with pytest.raises((Problem, KafkaError)) as raised:
            self.api.document(*request, **more)
        return raised.value

    def move(self, partition=0, **more):
        """Return the body of a plan that moves a partition to the broker without a replica of it."""
        replicas = self.broker.metadata.topics["orders"].partitions[partition].replicas
        (free,) = {1, 2, 3} - set(replicas)
        row = {"topic": "orders", "partition": partition, "replicas": [free, replicas[0]]}
        return {"kind": "reassign", "assignments": [row], **more}


@pytest.fixture(scope="module")
def shared():
    return Scene()


@pytest.fixture
def scene():
    return Scene()


def test_dry_run(shared):
    """A dry run returns the moves, their sizes, each broker's resulting data and the znodes, and writes nothing."""
    before = shared.run(shared.zookeeper.get_children(znodes.PLANS))
    request = shared.move(throttle_bytes_per_second=1000, comment="for é")
    tried = shared.api.document("POST", "/v1/plans", request, dry_run=True)
    (move,) = tried["moves"]
    row = request["assignments"][0]
    assert (move["number"], move["topic"], move["partition"], move["to"]) == (0, "orders", 0, row["replicas"])
    assert (move["action"], move["state"], tried["moves_count"]) == ("move", "waiting", 1)
    assert {each["broker_id"] for each in tried["brokers"]} == {1, 2, 3}
    assert sum(each["replicas_after"] - each["replicas_before"] for each in tried["brokers"]) == 0
    assert (tried["plan"]["comment"], tried["plan"]["throttle_bytes_per_second"]) == ("for é", 1000)
    assert [(each["operation"], each["path"]) for each in tried["znodes"][:2]] == [
        ("set", "/kreplica/plans"),
        ("create", f"/kreplica/plans/{tried['plan']['id']}"),
    ]
    assert tried["dry_run"] is True
    assert shared.run(shared.zookeeper.get_children(znodes.PLANS)) == before


def test_plan_is_created_in_one_transaction(scene):
    """One transaction writes the znodes that the dry run showed, and the response has the location of the plan."""
    answer = scene.api.answer("POST", "/v1/plans", scene.move())
    made = answer.document
    plan_id = made["plan"]["id"]
    assert (answer.status, answer.location, plan_id) == (201, "/v1/plans/plan-0000000001", "plan-0000000001")
    written = {row["path"]: row["data"] for row in made["znodes"]}
    assert written[f"{znodes.PLANS}/{plan_id}/steps/00000000"] == json.loads(
        scene.data(znodes.plan_steps_path(plan_id, 0))
    )
    assert documents.decode_last_number(scene.data(znodes.PLANS)) == 1
    shown = scene.api.document("GET", f"/v1/plans/{plan_id}")
    assert (shown["id"], shown["kind"], shown["progress"]["moves"]) == (plan_id, "reassign", 1)
    (row,) = scene.api.document("GET", f"/v1/plans/{plan_id}/moves")["moves"]
    assert row["to"] == made["moves"][0]["to"]


def test_drained_broker_is_cordoned_with_the_plan(scene):
    """The cordon and the plan are written together, so that no new replica is placed on the broker in between."""
    made = scene.api.document("POST", "/v1/plans", {"kind": "drain", "brokers": [3]})
    cordon = decode_cordon(3, scene.data(znodes.cordoned_path(3)))
    assert cordon.reason == f"drained by {made['plan']['id']}"
    assert all(3 not in move["to"] for move in made["moves"])


def test_sizes_come_from_the_leaders(scene):
    """A dry run computes bytes from the replica sizes that leaders report."""
    leader = scene.cluster.leader_client("orders", 0, name="producer")
    scene.run(leader.produce("orders", 0, batch(*[b"x" * 1000] * 5)))
    tried = scene.api.document("POST", "/v1/plans", scene.move(throttle_bytes_per_second=100), dry_run=True)
    assert tried["bytes"] >= 5000
    assert tried["moves"][0]["bytes"] == tried["bytes"]
    assert tried["eta_seconds"] >= 50
    (gets,) = [each for each in tried["brokers"] if each["bytes_in"]]
    assert gets["bytes_in"] == tried["bytes"]


def test_rebalance_by_weights(shared):
    """A rebalance can use weights; the response has the imbalance of these weights."""
    body = {"kind": "rebalance", "weights": [{"topic": "orders", "partition": 0, "weight": 5}]}
    tried = shared.api.document("POST", "/v1/plans", body, dry_run=True)
    assert any(each.startswith("The weight of a broker ranges from") for each in tried["warnings"])
    assert tried["plan"]["request"]["weights"] == body["weights"]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"kind": "reassign"}, "assignments"),
        ({"kind": "drain", "brokers": [9]}, "9"),
        ({"kind": "replication_factor", "topics": ["nothing"], "replication_factor": 2}, "nothing"),
        ({"kind": "add_partitions", "topic": "orders", "partitions": 4}, "orders"),
        ({"kind": "rebalance", "weights": [{"topic": "no", "partition": 0, "weight": 1}]}, "topic 'no' does not exist"),
    ],
)
def test_impossible_plans_are_refused(shared, body, part):
    """An impossible plan is refused, and the reason names the missing, unknown or impossible part."""
    assert part in str(shared.problem("POST", "/v1/plans", body, dry_run=True))


def test_unknown_members_are_refused(shared):
    """A body with a misspelled member is refused."""
    with pytest.raises(ValidationError):
        shared.api.document("POST", "/v1/plans", {"kind": "rebalance", "topic_names": ["a"]})


def stopped(plan_id, state, steps_count=1, **members):
    """Return the header of a plan that no controller runs, because it has ended or is being prepared."""
    plan = documents.decode_plan(plan_id, PLAIN_HEADER)
    return replace(plan, state=state, steps_count=steps_count, **members)


PLAIN_HEADER = json.dumps(
    {"version": 1, "kind": "rebalance", "state": "preparing", "created_at_ms": 1, "steps_count": 1, "moves_at_once": 5}
).encode()


def put(scene, number, state, steps=(), outcomes=None, **members):
    """Write a plan's znodes directly."""
    members.setdefault("created_at_ms", scene.broker.runtime.wall_clock_ms())
    plan = stopped(documents.plan_id(number), PlanState.PREPARING, len(steps), **members)
    for pieces in documents.creation(plan, steps):
        for each in pieces:
            scene.run(scene.zookeeper.create(each.path, each.data))
    for chunk, rows in (outcomes or {}).items():
        path = znodes.plan_progress_path(plan.plan_id, chunk)
        scene.run(scene.zookeeper.create(path, documents.encode_outcomes(rows)))
    ended = stopped(plan.plan_id, state, len(steps), **members)
    scene.set(znodes.plan_path(plan.plan_id), documents.encode_plan(ended))
    return plan.plan_id


def steps_of(count):
    return [Step(Action.MOVE, "old", number, (1, 2), (3, 2), 10) for number in range(count)]


def test_plans_are_listed_newest_first(shared):
    """Plans are listed newest first, in pages."""
    for number in (901, 902, 903):
        put(shared, number, PlanState.COMPLETED)
    first = shared.api.document("GET", "/v1/plans", limit=2)
    assert [plan["id"] for plan in first["plans"]] == ["plan-0000000903", "plan-0000000902"]
    rest = shared.api.document("GET", "/v1/plans", after=first["next"])
    assert rest["plans"][0]["id"] == "plan-0000000901"
    assert rest["next"] is None


def test_pages_of_moves_span_chunks(shared):
    """On every page of a large plan, each move has its number within the plan and its outcome."""
    finished = [StepOutcome(StepState.FINISHED)] * documents.STEPS_PER_CHUNK_MAX
    outcomes = {0: finished, 1: [*finished[:-1], StepOutcome(StepState.FAILED, "no disk")]}
    plan_id = put(shared, 950, PlanState.FAILED, steps_of(2500), outcomes, reason="1 of 2500 steps failed")
    page = shared.api.document("GET", f"/v1/plans/{plan_id}/moves", limit=3, after="998")
    assert [(row["number"], row["partition"], row["state"]) for row in page["moves"]] == [
        (999, 999, "failed"),
        (1000, 1000, "waiting"),
        (1001, 1001, "waiting"),
    ]
    assert (page["moves"][0]["reason"], page["next"]) == ("no disk", "1001")
    last = shared.api.document("GET", f"/v1/plans/{plan_id}/moves", after="2497")
    assert ([row["number"] for row in last["moves"]], last["next"]) == ([2498, 2499], None)
    finished = shared.api.document("GET", f"/v1/plans/{plan_id}/moves", limit=1)["moves"][0]
    assert (finished["bytes"], finished["bytes_done"]) == (10, 10)
    assert shared.api.document("GET", f"/v1/plans/{plan_id}/moves", after="2499") == {"moves": [], "next": None}


def test_progress_includes_running_copies(scene):
    """Progress includes the bytes that brokers report for running copies."""
    leader = scene.cluster.leader_client("orders", 0, name="producer")
    scene.run(leader.produce("orders", 0, batch(*[b"x" * 1000] * 5)))
    replicas = scene.cluster.brokers[1].program.metadata.topics["orders"].partitions[0].replicas
    # The copying broker already has the replica, as if the move were nearly done.
    step = Step(Action.MOVE, "orders", 0, (replicas[0],), tuple(replicas), 6000)
    plan_id = put(scene, 5, PlanState.PREPARING, [step], {0: [StepOutcome(StepState.MOVING)]})
    totals = documents.encode_progress(PlanProgress(moving=1, bytes=6000))
    scene.set(znodes.plan_progress_path(plan_id), totals)
    scene.set(znodes.plan_path(plan_id), documents.encode_plan(stopped(plan_id, PlanState.PREPARING, bytes=6000)))
    shown = scene.api.document("GET", f"/v1/plans/{plan_id}")
    assert 5000 <= shown["progress"]["bytes_done"] <= 6000
    (row,) = scene.api.document("GET", f"/v1/plans/{plan_id}/moves")["moves"]
    assert row["bytes_done"] == shown["progress"]["bytes_done"]


def test_change_with_an_etag(shared):
    """A change with an outdated ETag is refused, and writes nothing."""
    plan_id = put(shared, 960, PlanState.PREPARING)
    etag = shared.api.answer("GET", f"/v1/plans/{plan_id}").etag
    changed = shared.api.answer("PATCH", f"/v1/plans/{plan_id}", {"moves_at_once": 2}, if_match=etag)
    assert (changed.document["moves_at_once"], changed.document["dry_run"]) == (2, False)
    assert documents.decode_plan(plan_id, shared.data(znodes.plan_path(plan_id))).moves_at_once == 2
    late = shared.problem("PATCH", f"/v1/plans/{plan_id}", {"comment": "x"}, if_match=etag)
    assert late.status == 412
    again = shared.api.answer("PATCH", f"/v1/plans/{plan_id}", {"comment": "x"}, if_match=changed.etag, dry_run=True)
    assert (again.document["comment"], again.etag) == ("x", changed.etag)
    assert shared.api.document("GET", f"/v1/plans/{plan_id}")["comment"] == ""


def test_change_without_an_etag_is_retried(shared, monkeypatch):
    """A change without an ETag is retried if the controller writes the plan at the same moment."""
    plan_id = put(shared, 961, PlanState.PREPARING)
    plans = next(r for r in shared.api._routes if r.path == "/v1/plans/{plan}").handler.__self__
    read = plans._plans.plan

    async def read_and_overtaken(wanted):
        found = await read(wanted)
        monkeypatch.setattr(plans._plans, "plan", read)
        await shared.zookeeper.set_data(znodes.plan_path(wanted), documents.encode_plan(found.plan))
        return found

    monkeypatch.setattr(plans._plans, "plan", read_and_overtaken)
    shown = shared.api.document("PATCH", f"/v1/plans/{plan_id}", {"comment": "mine"})
    assert shown["comment"] == "mine"
    assert documents.decode_plan(plan_id, shared.data(znodes.plan_path(plan_id))).comment == "mine"


def test_ended_plan_is_neither_changed_nor_cancelled(shared):
    plan_id = put(shared, 962, PlanState.COMPLETED)
    for method, path, body in (("PATCH", "", {"comment": "x"}), ("POST", "/cancel", {})):
        problem = shared.problem(method, f"/v1/plans/{plan_id}{path}", body)
        assert (problem.status, problem.title) == (409, "PLAN_ENDED")


def test_cancellation_is_one_write(scene):
    """A cancellation only writes the plan's header, whose state shows whether finished moves are reverted too."""
    scene.cluster.brokers[CONTROLLER_BROKER].kill()  # no controller runs the plan until the session ends
    plan_id = put(scene, 1, PlanState.PENDING, steps_of(1))
    tried = scene.api.document("POST", f"/v1/plans/{plan_id}/cancel", {"rollback": True}, dry_run=True)
    (row,) = tried["znodes"]
    assert (row["operation"], row["path"]) == ("set", f"/kreplica/plans/{plan_id}")
    assert (row["data"]["state"], row["data"]["rollback"]) == ("cancelling", True)
    assert scene.api.document("GET", f"/v1/plans/{plan_id}")["state"] == "pending"
    assert scene.api.document("POST", f"/v1/plans/{plan_id}/cancel")["state"] == "cancelling"


def test_ended_plan_is_deleted(shared):
    """Deleting an ended plan removes all its znodes; a missing plan cannot be deleted."""
    outcomes = {0: [StepOutcome(StepState.FINISHED)] * documents.STEPS_PER_CHUNK_MAX}
    plan_id = put(shared, 970, PlanState.COMPLETED, steps_of(1500), outcomes)
    removed = shared.api.document("DELETE", f"/v1/plans/{plan_id}")
    assert removed["znodes"][-1]["path"] == f"/kreplica/plans/{plan_id}"
    assert plan_id not in shared.run(shared.zookeeper.get_children(znodes.PLANS))
    for gone in (plan_id, "plan-nothing", "..", "orders"):
        problem = shared.problem("GET", f"/v1/plans/{gone}")
        assert (problem.status, problem.title) == (404, "PLAN_NOT_FOUND")


def test_running_plan_is_not_deleted(scene):
    """A running plan must be cancelled before it can be deleted."""
    scene.cluster.brokers[CONTROLLER_BROKER].kill()
    plan_id = put(scene, 1, PlanState.PENDING, steps_of(1))
    assert scene.problem("DELETE", f"/v1/plans/{plan_id}").title == "PLAN_NOT_ENDED"


def test_large_plan_is_written_in_chunks(scene, monkeypatch):
    """A large plan's header has the state preparing until its last chunk is written."""
    monkeypatch.setattr(documents, "BATCH_BYTES_MAX", 250)
    monkeypatch.setattr(documents, "STEPS_PER_CHUNK_MAX", 1)
    rows = [scene.move(number)["assignments"][0] for number in range(3)]
    tried = scene.api.document("POST", "/v1/plans", {"kind": "reassign", "assignments": rows}, dry_run=True)
    header = f"/kreplica/plans/{tried['plan']['id']}"
    states = [row["data"]["state"] for row in tried["znodes"] if row["path"] == header]
    assert states == ["preparing", "pending"]
    pieces = [row["data"] for row in tried["znodes"] if row["path"].startswith(f"{header}/steps/")]
    assert pieces[-1] == "(1 step)"


def test_only_one_plan_is_written_at_a_time(scene):
    """While a plan is being written no other can be created, because its partitions are unknown; it can be deleted."""
    now_ms = scene.broker.runtime.wall_clock_ms()
    plan_id = put(scene, 1, PlanState.PREPARING, steps_of(1), created_at_ms=now_ms)
    problem = scene.problem("POST", "/v1/plans", scene.move(), dry_run=True)
    assert (problem.status, plan_id in problem.detail) == (409, True)
    scene.api.document("DELETE", f"/v1/plans/{plan_id}")
    assert scene.api.document("POST", "/v1/plans", scene.move(), dry_run=True)["moves_count"] == 1


def test_concurrent_plans(scene):
    """If two plans are created at the same moment, one is refused, and can be retried."""
    two = [
        Deferred.fromCoroutine(scene.api.answer_async("POST", "/v1/plans", scene.move(), dry_run=False))
        for _ in range(2)
    ]
    outcomes = []
    for each in two:
        each.addErrback(lambda failure: failure.value.status)
        outcomes.append(scene.run(each))
    assert sorted(outcome if isinstance(outcome, int) else outcome.status for outcome in outcomes) == [201, 409]


def test_partition_is_in_one_plan_only(scene):
    """A plan with a partition of an unfinished plan is refused, and the error names that plan."""
    scene.cluster.brokers[CONTROLLER_BROKER].kill()
    made = scene.api.document("POST", "/v1/plans", scene.move())
    error = scene.problem("POST", "/v1/plans", scene.move())
    assert made["plan"]["id"] in str(error)


def test_plan_is_executed(scene):
    """The controller, not the broker that received the request, executes a plan and updates its progress."""
    made = scene.api.document("POST", "/v1/plans", scene.move(moves_at_once=1))
    path = f"/v1/plans/{made['plan']['id']}"
    scene.cluster.run(20)
    shown = scene.api.document("GET", path)
    assert (shown["state"], shown["progress"]["finished"]) == ("completed", 1)
    assert shown["ended_at_ms"] >= shown["created_at_ms"]
    replicas = scene.cluster.brokers[3].program.metadata.topics["orders"].partitions[0].replicas
    assert list(replicas) == made["moves"][0]["to"]
