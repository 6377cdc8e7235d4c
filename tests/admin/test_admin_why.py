"""Explanations of partitions, groups, plans and brokers, through any broker, even without a controller."""

from __future__ import annotations

import pytest
from why_scenes import CONTROLLER, Members, Scene

from kreplica.admin.health.texts import time_text
from kreplica.admin.http.problems import Problem
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from tests.support.broker_scene import batch


def requests(why):
    return [(each["request"]["method"], each["request"]["path"]) for each in why["you_can"] if "request" in each]


# --- partitions -------------------------------------------------------------------------------------------------------


def test_healthy_partition():
    """A healthy partition waits for nothing; the last decision, its cause and time come from the controller."""
    scene = Scene()
    why = scene.why()
    assert (why["subject"], why["state"]) == ("partition orders-0", "healthy")
    assert why["summary"] == "Broker 2 leads orders-0, and all replicas are in sync."
    assert (why["waits_for"], why["you_can"], why["problems"]) == ([], [], [])
    (decision,) = why["decided"]
    assert (decision["broker_id"], decision["controller_epoch"]) == (1, 1)
    assert decision["event"] == "topics were created or removed"
    assert (decision["change"], decision["unanswered"]) == ("broker 2 is the first leader, in sync [2, 3]", [])
    assert scene.why(via=3) == why


def test_missing_replica():
    """The explanation names the missing replica, since when, the consequences and possible replacements."""
    scene = Scene()
    scene.kill(3)
    why = scene.why()
    assert why["state"] == "under_replicated"
    assert why["summary"] == "Broker 2 leads orders-0, and broker 3 is not in sync."
    (waits,) = why["waits_for"]
    assert waits.startswith("Broker 3 to restart and catch up (it left at 2023-11-14 ")
    assert why["decided"][0]["event"] == "broker 3 left"
    assert why["you_can"][0]["text"] == "Start broker 3."
    (replace,) = [each["request"] for each in why["you_can"] if "request" in each]
    assert replace["body"] == {
        "kind": "reassign",
        "assignments": [{"topic": "orders", "partition": 0, "replicas": [2, 1]}],
    }
    made = scene.apis[2].document(replace["method"], replace["path"], replace["body"], dry_run=True)
    assert made["moves_count"] == 1


def test_cordoned_broker_is_no_replacement():
    """If only a cordoned broker could replace a missing one, the explanation offers to uncordon it first."""
    scene = Scene()
    scene.apis[2].document("PUT", "/v1/brokers/1/cordon", {})
    scene.kill(3)
    (uncordon,) = [each for each in scene.why()["you_can"] if "request" in each]
    assert uncordon["text"] == "Uncordon broker 1, so that it can replace broker 3 in the replica list."
    assert uncordon["request"] == {"method": "DELETE", "path": "/v1/brokers/1/cordon"}
    scene.apis[2].document("DELETE", "/v1/brokers/1/cordon")
    scene.cluster.run(1)
    (replace,) = [each for each in scene.why()["you_can"] if "request" in each]
    assert replace["text"] == "Replace broker 3 with broker 1 in the replica list."


def test_too_few_in_sync_for_producers():
    """If the ISR is below min.insync.replicas, the explanation has the producers' error and a way to fix it."""
    scene = Scene(configs={"min.insync.replicas": "2"})
    scene.kill(3)
    why = scene.why()
    assert why["state"] == "under_min_isr"
    assert "producers with acks=all get NOT_ENOUGH_REPLICAS" in why["summary"]
    assert ("PATCH", "/v1/configs/topics/orders") in requests(why)


def test_fewer_replicas_than_min_insync_replicas():
    """If all replicas are in sync, acks=all is accepted, even if they are fewer than min.insync.replicas."""
    scene = Scene(configs={"min.insync.replicas": "4"})
    assert scene.why()["state"] == "healthy"
    scene.kill(3)
    assert scene.why()["state"] == "under_min_isr"


def test_partition_without_a_leader():
    """The partition waits for a replica with all acknowledged records; another may be elected despite losses."""
    scene = Scene()
    scene.kill(3)
    scene.produce(1)
    scene.cluster.brokers[2].kill()
    scene.run(scene.cluster.brokers[3].start(), 120.0)
    scene.cluster.run(20)
    why = scene.why(via=3)
    assert why["state"] == "offline"
    assert "acknowledged records (broker 2) is unavailable" in why["summary"]
    assert "broker 3 may lack records" in why["summary"]
    assert why["waits_for"][0].startswith("Broker 2 to restart (it left at ")
    (election,) = [each["request"] for each in why["you_can"] if "request" in each]
    assert election == {
        "method": "POST",
        "path": "/v1/elections",
        "body": {"type": "unclean", "partitions": [{"topic": "orders", "partition": 0}]},
    }
    assert why["decided"][0]["change"].startswith("leader 2 -> none")


def test_controller_is_gone():
    """Without the controller, the other facts are returned, with the broker that could not be queried.

    The next controller explains its takeover; the decisions of the dead one are lost.
    """
    scene = Scene()
    scene.cluster.brokers[CONTROLLER].kill()
    why = scene.why()
    assert why["problems"] == ["broker 1: cannot send a request to broker 1"]
    assert (why["state"], why["facts"]["controller"]) == ("healthy", 1)
    (decision,) = why["decided"]
    assert (decision["broker_id"], decision["event"], decision["controller_epoch"]) == (None, None, 1)
    assert decision["change"] == "broker 2 leads in leader epoch 0, in sync [2, 3]"
    scene.cluster.run(20)
    scene.apis.known = {2, 3}
    scene.kill(3)
    why = scene.why()
    assert why["decided"][0]["controller_epoch"] > 1
    assert "broker 3 left" in why["decided"][0]["event"]


def test_decisions_of_earlier_controllers():
    """Decisions from all terms are merged; each comes from the broker that made it."""
    scene = Scene()
    scene.run(scene.cluster.brokers[1].program.client.delete("/controller"))
    scene.cluster.run(5)
    scene.kill(3)
    why = scene.why()
    assert [each["event"] for each in why["decided"]][-1] == "topics were created or removed"
    later, first = [each["controller_epoch"] for each in why["decided"]]
    assert later > first == 1


def test_broker_that_does_not_apply_a_decision_is_named():
    """The explanation names brokers that were sent the last decision and have not responded."""
    scene = Scene(assignment=((2, 3, 1),))
    scene.cluster.simulation.network.cut("broker-1", "broker-3")
    scene.kill(2)
    why = scene.why(via=1)
    assert why["decided"][0]["change"].startswith("leader 2 -> ")
    assert why["decided"][0]["unanswered"] == [3]
    assert any(each.startswith("Broker 3 to respond to the controller's command from ") for each in why["waits_for"])
    scene.cluster.simulation.network.heal()
    scene.cluster.run(30)
    assert scene.why(via=1)["decided"][0]["unanswered"] == []


def test_move_waits_for_the_copy():
    """For a partition that is moved, the explanation has the copying broker, the bytes, the rate and the plan."""
    scene = Scene()
    for _ in range(6):
        scene.produce(500)  # more than one fetch
    plan = scene.move(throttle_bytes_per_second=1000)
    scene.cluster.run(5)
    why = scene.why()
    assert (why["state"], why["facts"]["plan"]) == ("moving", plan)
    assert "its replicas are being moved: to broker 1, away from broker 3." in why["summary"]
    (waits,) = why["waits_for"]
    assert waits.startswith("Broker 1 to catch up: it has ")
    assert waits.endswith(f"at no more than 1,000 bytes per second (throttle of {plan}).")
    assert requests(why) == [("PATCH", f"/v1/plans/{plan}"), ("POST", f"/v1/plans/{plan}/cancel")]
    of_plan = scene.why(f"plans/{plan}")
    assert of_plan["state"] == "running"
    assert of_plan["summary"] == f"{plan} (reassign) is running: 0 of 1 moves finished, 1 in progress, 0 waiting."
    (waits,) = of_plan["waits_for"]
    assert waits.startswith("Move 0, orders-0: broker 1 to catch up: it has ")
    (started,) = of_plan["decided"]
    assert (started["event"], started["change"]) == ("plan_started", f"plan {plan} started: reassign, 1 step")


def test_raised_throttle_takes_effect_at_once():
    """A copy that would take twenty minutes at the old rate continues when the throttle is removed."""
    scene = Scene()
    for _ in range(6):
        scene.produce(500)
    plan = scene.move(throttle_bytes_per_second=1000)
    scene.cluster.run(30)
    assert scene.why(f"plans/{plan}")["state"] == "running"
    scene.apis[2].document("PATCH", f"/v1/plans/{plan}", {"throttle_bytes_per_second": None})
    scene.cluster.run(30)
    ended = scene.why(f"plans/{plan}")
    assert (ended["state"], ended["decided"][0]["event"]) == ("completed", "plan_finished")
    assert requests(ended) == [("DELETE", f"/v1/plans/{plan}")]


def test_open_transaction():
    """If an open transaction delays read-committed consumers, the explanation has its producer and start time."""
    scene = Scene()
    producer = scene.transactional_producer()
    scene.run(producer.begin())
    scene.run(producer.send(TopicPartition("orders", 0), [b"kept back"]))
    why = scene.why()
    assert why["state"] == "open_transaction"
    assert "read-committed consumers cannot read beyond offset 0" in why["summary"]
    (transaction,) = why["facts"]["open_transactions"]
    assert f"producer ID {transaction['producer_id']} " in why["waits_for"][0]
    scene.run(producer.commit())
    scene.cluster.run(2)
    assert scene.why()["state"] == "healthy"


def test_missing_partition():
    scene = Scene()
    for path in ("partitions/orders/7", "partitions/nothing/0"):
        with pytest.raises(KafkaError) as refused:
            scene.why(path)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_record_without_enough_replicas():
    """If a record is rejected because too few replicas are in sync, the problem refers to the explanation."""
    scene = Scene(configs={"min.insync.replicas": "2"})
    scene.kill(3)
    with pytest.raises(Problem) as refused:
        scene.apis[2].document("POST", "/v1/topics/orders/messages", {"value": "x"})
    problem = refused.value.document("")
    assert (problem["status"], problem["title"]) == (503, "NOT_ENOUGH_REPLICAS")
    assert problem["detail"].startswith("orders-0: ")
    assert problem["what_to_do"].startswith("GET /v1/why/partitions/orders/0 ")
    assert scene.why(problem["why"].removeprefix("/v1/why/"))["state"] == "under_min_isr"


# --- groups -----------------------------------------------------------------------------------------------------------


def test_group():
    """Any broker returns the coordinator's explanation of a group."""
    scene = Members()
    member, joined = scene.join("first")
    scene.run(joined, 120.0)
    scene.run(member.commit({TopicPartition("orders", 0): 0}))
    answers = [scene.why("groups/readers", via=number) for number in (1, 2, 3)]
    assert answers[0]["state"] == "stable"
    assert answers[0]["summary"].endswith("coordinates, is in state Stable; it has no lag.")
    assert [(each["state"], each["facts"]["members"]) for each in answers] == [("stable", 1)] * 3


def test_lag_without_a_commit_is_explained():
    """The explanation of a group has the same lag as its page: partitions without a committed offset are included."""
    scene = Members(assignment=((2, 3), (2, 3)))
    member, joined = scene.join("first")
    scene.run(joined, 120.0)
    scene.run(member.commit({TopicPartition("orders", 0): 0}))
    for partition, count in ((0, 5), (1, 7)):
        leader = scene.cluster.leader_client("orders", partition, name=f"producer-{partition}")
        scene.run(leader.produce("orders", partition, batch(*[b"x"] * count)))
    scene.cluster.run(1)
    why = scene.why("groups/readers", via=1)
    text = "; its lag is 12 records, 7 of them in partitions without a committed offset."
    assert why["summary"].endswith(text)
    assert (why["facts"]["lag"], why["facts"]["lag_without_commit"]) == (12, 7)
    rows = [(each["partition"], each["committed_offset"], each["lag"]) for each in why["facts"]["partitions"]]
    assert rows == [(1, None, 7), (0, 0, 5)]
    assert scene.apis[1].document("GET", "/v1/groups/readers/lag")["lag"] == 12


def test_rebalance_waits_for_a_member():
    """The explanation names a member that has not rejoined, and the time until which the group waits for it."""
    scene = Members()
    member, joined = scene.join("hangs", session_timeout_ms=20_000, rebalance_timeout_ms=15_000)
    scene.run(joined, 120.0)
    _, second = scene.join("comes", session_timeout_ms=20_000, rebalance_timeout_ms=15_000)
    scene.cluster.run(3)
    why = scene.why("groups/readers", via=3)
    assert (why["state"], why["facts"]["state"]) == ("rebalancing", "PreparingRebalance")
    (waits,) = why["waits_for"]
    assert waits.startswith(f"Member {member.identity.member_id} (client hangs at ")
    assert "to rejoin, which a consumer does when it polls, until 2023-11-14" in waits
    scene.run(second, 120.0)
    assert scene.why("groups/readers")["facts"]["members"] == 1


def test_silent_member():
    """A silent member is named until its session expires; then its partitions are reported as unassigned."""
    scene = Members()
    member, joined = scene.join("quiet", session_timeout_ms=20_000)
    scene.run(joined, 120.0)
    scene.run(member.commit({TopicPartition("orders", 0): 0}))
    scene.produce(5)
    scene.cluster.run(12)
    why = scene.why("groups/readers")
    assert any(each.startswith("A heartbeat of member ") for each in why["waits_for"])
    scene.cluster.run(20)
    why = scene.why("groups/readers", via=1)
    assert (why["state"], why["facts"]["lag"]) == ("empty", 5)
    assert "it reads nothing; its lag is 5 records" in why["summary"]
    since_ms = why["facts"]["no_commit_since_ms"]
    assert why["facts"]["partitions"][0]["committed_at_ms"] <= since_ms
    assert why["summary"].endswith(f" No commit since {time_text(since_ms)} (less than a minute).")
    scene.cluster.run(190)
    assert scene.why("groups/readers")["summary"].endswith(f" No commit since {time_text(since_ms)} (3 minutes).")
    assert ("POST", "/v1/groups/readers/offsets") in requests(why)


def test_group_waits_for_a_partition():
    """If a group waits for a partition without a leader, its explanation refers to the partition."""
    scene = Members(assignment=((3,),))
    member, joined = scene.join("first", session_timeout_ms=60_000)
    scene.run(joined, 120.0)
    scene.run(member.commit({TopicPartition("orders", 0): 0}))
    scene.kill(3)
    scene.cluster.run(10)
    why = scene.why("groups/readers", via=2)
    assert why["state"] == "leaderless"
    assert "A leader of orders-0." in why["waits_for"]
    assert ("GET", "/v1/why/partitions/orders/0") in requests(why)


def test_coordinator_without_an_admin_listener():
    """If the coordinator has no admin listener, the group's state is requested through Kafka's protocol."""
    scene = Members()
    _, joined = scene.join("first", session_timeout_ms=60_000)
    scene.run(joined, 120.0)
    coordinator = scene.coordinator()
    via = next(number for number in scene.cluster.brokers if number != coordinator)
    found = scene.apis.running
    scene.apis.running = lambda number: None if number == coordinator else found(number)
    why = scene.why("groups/readers", via=via)
    assert (why["state"], why["facts"]["coordinator"]) == ("stable", coordinator)
    problem = f"Broker {coordinator}, which coordinates the group, did not explain its state"
    assert why["problems"][0].startswith(problem)
    with pytest.raises(KafkaError):
        scene.why("groups/no/such group", via=via)


def test_group_without_a_coordinator():
    """If the partition that stores the group's state has no leader, the explanation refers to it."""
    scene = Members()
    _, joined = scene.join("first", session_timeout_ms=60_000)
    scene.run(joined, 120.0)
    survivor = 2
    for number in (1, 3):
        scene.cluster.brokers[number].kill()
    view = scene.cluster.brokers[survivor].program.coordinators.view
    view.leader_of = lambda key: None
    why = scene.why("groups/readers", via=survivor)
    assert why["state"] == "no_coordinator"
    (request,) = requests(why)
    assert request[1].startswith("/v1/why/partitions/__consumer_offsets/")


# --- brokers ----------------------------------------------------------------------------------------------------------

REQUEST = "DeleteTopics v5 (2000000 bytes) from client 'cleaner' at 10.0.0.7:51234"


def test_broker_without_stalls():
    """A broker without stalls is healthy, whichever broker receives the request."""
    scene = Scene()
    why = scene.why("brokers/2", via=2)
    assert (why["subject"], why["state"]) == ("broker 2", "healthy")
    assert why["facts"] == {"faults": [], "stalls_since_start": 0, "stalls": [], "certificates": []}
    assert scene.why("brokers/2", via=3) == why


def test_broker_with_a_blocked_event_loop():
    """Stalls are listed with time, duration and cause, newest first; after five minutes the broker is healthy again."""
    scene = Scene()
    scene.apis.stall(2, "Metadata v4 (90000 bytes) from client 'a' at 10.0.0.8:1", 0.15)
    scene.apis.stall(2, REQUEST, 0.24)
    why = scene.why("brokers/2", via=3)
    assert why["state"] == "stalling"
    assert "blocked 2 times in the last 5 minutes" in why["summary"]
    assert why["summary"].endswith(f"by: {REQUEST}.")
    newest, older = why["facts"]["stalls"]
    assert (newest["duration_ms"], newest["cause"]) == (240, REQUEST)
    assert older["duration_ms"] == 150
    assert newest["at_ms"] - older["at_ms"] == pytest.approx(290, abs=1)
    assert scene.why("brokers/3", via=2)["state"] == "healthy"
    scene.apis.pass_time(2, 301)
    scene.cluster.run(1)
    why = scene.why("brokers/2", via=2)
    assert why["state"] == "healthy"
    assert why["facts"]["stalls_since_start"] == len(why["facts"]["stalls"]) == 2


def test_certificates_that_expire():
    """A certificate that expires soon is reported by the broker's explanation, metrics and warnings."""
    scene = Scene()
    expires_at_ms = scene.add_certificate(2, "SASL_SSL", days=12.5)
    why = scene.why("brokers/2", via=3)
    sentence = "The certificate CN=broker of the listener SASL_SSL expires in 12 days."
    assert why["state"] == "certificate_expiring"
    assert why["summary"] == f"Broker 2: {sentence}"
    assert why["you_can"][0]["text"].startswith("Replace the files")
    (fact,) = why["facts"]["certificates"]
    assert (fact["listener"], fact["subject"]) == ("SASL_SSL", "CN=broker")
    assert fact["expires_at_ms"] == pytest.approx(expires_at_ms, abs=1000)
    rows = scene.apis[3].document("GET", "/v1/live-metrics")["brokers"]
    assert [row["warnings"] for row in rows] == [[], [sentence], []]
    assert [row["certificates"] for row in rows] == [[], [{**fact, "days": pytest.approx(fact["days"], abs=0.01)}], []]
    assert scene.metric(2, "kreplica_tls_certificate_expiry_days") == {("SASL_SSL",): pytest.approx(12.5, abs=0.01)}
    scene.add_certificate(2, "SASL_SSL", days=-2)
    scene.cluster.run(1)
    why = scene.why("brokers/2", via=2)
    assert why["state"] == "certificate_expired"
    assert why["summary"].endswith("The certificate CN=broker of the listener SASL_SSL expired 2 days ago.")


def test_broker_that_does_not_respond():
    """If a broker does not respond, its explanation has the reason."""
    scene = Scene()
    scene.kill(3)
    why = scene.why("brokers/3", via=2)
    assert why["state"] == "broker_gone"
    assert why["summary"].startswith("Broker 3 is not registered")
    assert len(why["problems"]) == 1
