"""Every kind of plan, and every choice in a plan's dialogs: the preview, and the moves."""

import pytest
from confluent_kafka import Producer

from kreplica.cluster.plans.plan import PlanKind

from .dialogs import call_api, confirm_writes, dialog_cluster, partitions_of, previewed_writes, topic, wait_for_api

pytestmark = pytest.mark.needs_program("chromium", "chromedriver")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with dialog_cluster(tmp_path_factory.mktemp("plans")) as started:
        yield started


@pytest.fixture
def view(page, cluster):
    page.base = cluster.admin_url
    yield page
    assert page.console_errors() == []


PLANS = {
    "rebalance": ("moving", {}, None, {"topics": ["moving"]}),
    "add_brokers": ("moving", {}, "Broker 3", {"brokers": [3]}),
    "drain": ("moving", {}, "Broker 2", {"brokers": [2]}),
    "replication_factor": ("moving", {"Replication factor": "3"}, None,
                           {"topics": ["moving"], "replication_factor": 3}),
    "reassign": ("moving", {"Partitions and their replicas": "moving 0 3,1"}, None,
                 {"assignments": [{"topic": "moving", "partition": 0, "replicas": [3, 1]}]}),
    "add_partitions": ("moving", {"New number of partitions": "4"}, None, {"topic": "moving", "partitions": 4}),
    "remove_partitions": ("moving", {"New number of partitions": "1"}, None, {"topic": "moving", "partitions": 1}),
}  # fmt: skip
"""By kind: the topic in the address, values of fields, a check box, and the request that the form must send."""


def test_each_kind_of_plan_has_a_preview(view, cluster):
    """The preview equals the API's dry run for the same request; nothing is written."""
    assert {kind.value for kind in PlanKind} == PLANS.keys()
    topic(cluster, "moving", {"0": [1, 2], "1": [2, 1]})
    for kind, (name, fields, box, body) in PLANS.items():
        expected = call_api(cluster, "/v1/plans?dry_run=true", "POST", {"kind": kind, **body})
        view.open(f"plans/new?kind={kind}&topic={name}")
        view.named("Preview", "button")
        for label, value in fields.items():
            view.until(lambda label=label: view.field(label))
            view.fill(label, value)
        if box is not None:
            view.until(lambda box=box: [each for each in view.all("label") if each.text.startswith(box)])
            next(each for each in view.all("label") if each.text.startswith(box)).click()
        view.press("Preview", "button")
        writes = len(expected["znodes"])
        view.until_text(f"{writes} write{'' if writes == 1 else 's'} to ZooKeeper")
    assert call_api(cluster, "/v1/plans")["plans"] == []


def start_plan(view):
    """Start the plan that is previewed, and return its ID."""
    view.press("Start the plan")
    view.until(lambda: view.address.startswith("plan/"))
    return view.address.removeprefix("plan/")


def test_a_broker_is_drained_and_filled_again(view, cluster):
    """Brokers are chosen with check boxes, first for a drain, then for a plan that moves replicas back."""
    topic(cluster, "drained", {"0": [3, 2]})
    view.open("plans/new?kind=drain&brokers=3")
    view.until(lambda: view.all("input[type=checkbox][value='3']:checked"))
    view.press("Preview", "button")
    plan = start_plan(view)
    wait_for_api(cluster, f"/v1/plans/{plan}", lambda found: found["state"] == "completed")
    assert 3 not in partitions_of(cluster, "drained")[0]["replicas"]
    assert call_api(cluster, "/v1/brokers/3")["replicas"] == 0
    if call_api(cluster, "/v1/brokers/3")["cordoned"]:
        view.open("broker/3")
        view.press("Uncordon")
        confirm_writes(view, cluster, "Uncordon")
    view.open("plans/new?kind=add_brokers&brokers=3")
    view.until(lambda: view.all("input[type=checkbox][value='3']:checked"))
    view.press("Preview", "button")
    plan = start_plan(view)
    wait_for_api(cluster, f"/v1/plans/{plan}", lambda found: found["state"] == "completed")
    assert call_api(cluster, "/v1/brokers/3")["replicas"] > 0


def test_each_kind_of_plan_is_executed(view, cluster):
    """Each kind of plan has the values from the form, and moves the replicas."""
    topic(cluster, "moved", {"0": [1, 2], "1": [2, 1]})
    done = lambda found: found["state"] == "completed"  # noqa: E731
    expected = {
        "reassign": ({"Partitions and their replicas": "moved 0 3,1"}, [[3, 1], [2, 1]]),
        "replication_factor": ({"Replication factor": "3"}, None),
        "add_partitions": ({"New number of partitions": "3"}, None),
        "remove_partitions": ({"New number of partitions": "2", "Wait for consumers (minutes)": "0"}, None),
    }
    for kind, (fields, replicas) in expected.items():
        view.open(f"plans/new?kind={kind}&topic=moved")
        view.named("Preview", "button")
        for label, value in {**fields, "Comment": f"a {kind}", "Concurrent moves per broker": "2"}.items():
            view.until(lambda label=label: view.field(label))
            view.fill(label, value)
        view.press("Preview", "button")
        plan = start_plan(view)
        found = wait_for_api(cluster, f"/v1/plans/{plan}", done)
        assert (found["kind"], found["comment"], found["moves_at_once"]) == (kind, f"a {kind}", 2)
        if replicas is not None:
            assert [each["replicas"] for each in partitions_of(cluster, "moved")] == replicas
    factors = [len(each["replicas"]) for each in partitions_of(cluster, "moved")]
    assert factors == [3, 3]


def slow_plan(view, cluster, name, replicas):
    """Start a plan that finishes moving one partition, and would copy the other one for hours.

    :param replicas: must differ between tests, because a broker's throttle remembers the bytes it has copied.
    """
    topic(cluster, name, {"0": replicas, "1": replicas})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for _ in range(200):
        producer.produce(name, value=bytes(10_000), partition=1)
    assert producer.flush(20) == 0
    view.open(f"plans/new?kind=replication_factor&topic={name}")
    view.until(lambda: view.field("Topics"))
    view.fill("Throttle (MB/s per broker)", "0.001")
    view.press("Preview", "button")
    plan = start_plan(view)
    found = wait_for_api(cluster, f"/v1/plans/{plan}", lambda found: found["progress"]["finished"] == 1)
    assert (found["throttle_bytes_per_second"], found["state"]) == (1000, "running")
    return plan


def test_the_throttle_of_a_plan_is_changed_and_removed(view, cluster):
    """Once its throttle is removed, a plan completes; its record can then be deleted, and the replicas stay."""
    plan = slow_plan(view, cluster, "slow", [1, 2])
    throttles = (("0.002", "At most 2 kB/s per broker.", 2000), ("", "The throttle is removed.", None))
    for text, title, throttle in throttles:
        view.press("Change throttle")
        view.fill("Maximum MB/s per broker", text)
        view.until_text(title, "dialog")
        assert f"/kreplica/plans/{plan}" in [path for _, path, _ in previewed_writes(view)]
        view.confirm("Change")
        assert call_api(cluster, f"/v1/plans/{plan}")["throttle_bytes_per_second"] == throttle
    wait_for_api(cluster, f"/v1/plans/{plan}", lambda found: found["state"] == "completed")
    view.press("Forget")
    assert ("delete", f"/kreplica/plans/{plan}") in [write[:2] for write in confirm_writes(view, cluster, "Forget")]
    assert plan not in [each["id"] for each in call_api(cluster, "/v1/plans")["plans"]]
    assert [len(each["replicas"]) for each in partitions_of(cluster, "slow")] == [3, 3]


@pytest.mark.parametrize(("reverts", "replicas", "after"), [(False, [2, 3], [3, 2]), (True, [3, 1], [2, 2])])
def test_a_plan_is_cancelled(view, cluster, reverts, replicas, after):
    """A cancelled plan keeps finished moves unless the box is checked; "Keep it running" changes nothing."""
    name = f"cancelled-{reverts}"
    plan = slow_plan(view, cluster, name, replicas)
    view.press("Cancel plan")
    view.press("Keep it running")
    view.until(lambda: not view.all("dialog"))
    assert call_api(cluster, f"/v1/plans/{plan}")["state"] == "running"
    view.press("Cancel plan")
    if reverts:
        view.press("Revert the moves that are finished", "label")
    view.until_text("All moves are reverted." if reverts else "Finished moves are kept.", "dialog")
    view.confirm("Cancel the plan")
    wait_for_api(cluster, f"/v1/plans/{plan}", lambda found: found["state"] == "cancelled")
    assert [len(each["replicas"]) for each in partitions_of(cluster, name)] == after
