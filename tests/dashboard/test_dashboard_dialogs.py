"""Each choice of a dialog: the preview, and the state of the cluster afterwards."""

import json
import time
import urllib.error
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kreplica.cluster.plans.plan import PlanKind
from tests.support.standalone import StandaloneProcess

pytestmark = pytest.mark.needs_program("chromium", "chromedriver")

OVERRIDES = ("default.replication.factor=2", "offsets.topic.replication.factor=2", "zookeeper.session.timeout.ms=3000")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    arguments = tuple(word for override in OVERRIDES for word in ("--override", override))
    with StandaloneProcess(tmp_path_factory.mktemp("dialogs"), brokers=3, arguments=arguments) as process:
        yield process


@pytest.fixture
def at(page, cluster):
    page.base = cluster.admin_url
    yield page
    assert page.complaints() == []


def asked(cluster, path, method="GET", body=None):
    """Return the API's own response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        cluster.admin_url + path, data, {"content-type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from None


def put_time(at, label, seconds):
    """Fill a date and time field, whose keys depend on the browser's language."""
    script = """
        const local = new Date(arguments[1] * 1000);
        local.setMinutes(local.getMinutes() - local.getTimezoneOffset());
        arguments[0].value = local.toISOString().slice(0, 19);
        arguments[0].dispatchEvent(new Event("input", {bubbles: true}));"""
    at.driver.execute_script(script, at.field(label), int(seconds))


def topic(cluster, name, assignment):
    asked(cluster, "/v1/topics", "POST", {"name": name, "assignment": assignment})


RESETS = (
    ("The beginning", None, None, 0),
    ("The end", None, None, 40),
    ("A time", "Time", lambda: time.time() - 2 * 86_400, 10),
    ("A duration ago", "Minutes ago", 60, 30),
    ("Shift by a number of messages", "Messages (negative: back)", -3, 32),
    ("An offset", "Offset", 7, 7),
)
"""Text of each target of a reset, label and value of its field, and the resulting offset."""


@pytest.fixture(scope="module")
def _records(cluster):
    """Two topics with records of different ages."""
    topic(cluster, "chosen", {"0": [1, 2]})
    topic(cluster, "other", {"0": [2, 1]})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    now = time.time()
    for count, age_s in ((10, 3 * 86_400), (20, 7_200), (10, 0)):
        for _ in range(count):
            for name in ("chosen", "other"):
                producer.produce(name, value="v", timestamp=int((now - age_s) * 1000))
    assert producer.flush(20) == 0


@pytest.mark.usefixtures("_records")
@pytest.mark.parametrize(("text", "label", "value", "after"), RESETS, ids=[row[0] for row in RESETS])
def test_a_reset_writes_the_previewed_offsets(at, cluster, text, label, value, after):
    """The committed offset is the one of the preview; a topic of the group that is not named keeps its own."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "resets", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(name, 0, 35) for name in ("chosen", "other")], asynchronous=False)

    at.open("group/resets")
    at.press("Reset offsets")
    at.choose("Reset to", text)
    if callable(value):
        put_time(at, label, value())
    elif label is not None:
        at.fill(label, str(value))
    at.fill("Topics", "chosen")
    at.press("Preview")
    at.until(lambda: at.all("dialog tbody tr"))
    assert [cell.text for cell in at.all("dialog tbody tr > *")][:3] == ["chosen-0", "35", str(after)]
    at.confirm("Reset")
    at.until_text("are reset.", "#news, #notifications, [role=status]")
    committed = consumer.committed([TopicPartition(name, 0) for name in ("chosen", "other")], timeout=10)
    consumer.close()
    assert [each.offset for each in committed] == [after, 35]


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
"""By kind: topic in the address, values of fields, a check box, and the request that the form must make."""


def test_each_kind_of_plan_has_a_preview(at, cluster):
    """The preview is that of the same request to the API; nothing is written."""
    assert {kind.value for kind in PlanKind} == PLANS.keys()
    topic(cluster, "moving", {"0": [1, 2], "1": [2, 1]})
    for kind, (name, fields, box, body) in PLANS.items():
        expected = asked(cluster, "/v1/plans?dry_run=true", "POST", {"kind": kind, **body})
        at.open(f"plans/new?kind={kind}&topic={name}")
        at.named("Preview", "button")
        for label, value in fields.items():
            at.until(lambda label=label: at.field(label))
            at.fill(label, value)
        if box is not None:
            at.until(lambda box=box: [each for each in at.all("label") if each.text.startswith(box)])
            next(each for each in at.all("label") if each.text.startswith(box)).click()
        at.press("Preview", "button")
        writes = len(expected["znodes"])
        at.until_text(f"{writes} write{'' if writes == 1 else 's'} to ZooKeeper")
    assert asked(cluster, "/v1/plans")["plans"] == []


def test_preferred_leaders_are_elected(at, cluster):
    """The election of the dialog makes the first replica the leader."""
    topic(cluster, "elected", {"0": [3, 1]})
    asked(cluster, "/v1/standalone/brokers/3/kill", "POST")
    deadline = time.monotonic() + 20
    while asked(cluster, "/v1/topics/elected/partitions")["partitions"][0]["leader"] != 1:
        assert time.monotonic() < deadline
    asked(cluster, "/v1/standalone/brokers/3/start", "POST")
    while sorted(asked(cluster, "/v1/topics/elected/partitions")["partitions"][0]["isr"]) != [1, 3]:
        assert time.monotonic() < deadline + 20
    at.open("topic/elected")
    at.press("Elect preferred leaders")
    at.until_text("Elect the preferred leaders of elected?", "dialog")
    at.confirm("Elect")
    at.until(lambda: asked(cluster, "/v1/topics/elected/partitions")["partitions"][0]["leader"] == 3)


def test_a_cordon_is_written_and_removed(at, cluster):
    at.open("broker/2")
    at.press("Cordon")
    at.until_text("/kreplica/cordoned/2", "dialog")
    at.confirm("Cordon")
    at.until(lambda: asked(cluster, "/v1/brokers/2")["cordoned"])
    at.press("Uncordon")
    at.confirm("Uncordon")
    at.until(lambda: not asked(cluster, "/v1/brokers/2")["cordoned"])
