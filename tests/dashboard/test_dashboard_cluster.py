"""The dashboard with a real cluster of three brokers, used as by an operator."""

import json
import re
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from selenium.webdriver.common.keys import Keys

from tests.support.standalone import StandaloneProcess

pytestmark = pytest.mark.needs_program("chromium", "chromedriver")

OVERRIDES = ("default.replication.factor=3", "min.insync.replicas=2", "zookeeper.session.timeout.ms=3000")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    arguments = tuple(word for override in OVERRIDES for word in ("--override", override))
    with StandaloneProcess(tmp_path_factory.mktemp("dashboard"), brokers=3, arguments=arguments) as process:
        yield process


@pytest.fixture
def at(page, cluster):
    page.base = cluster.admin_url
    yield page
    assert page.console_errors() == []


def call_api(cluster, path, method="GET", body=None):
    """Send a request to the API without the dashboard, and return its response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        cluster.admin_url + path, data, {"content-type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def topic(cluster, name, *, partitions=1, copies=3, messages=0, size=10):
    """Create a topic with messages through the API and a producer."""
    call_api(cluster, "/v1/topics", "POST", {"name": name, "partitions": partitions, "replication_factor": copies})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(messages):
        producer.produce(name, key=str(number), value=json.dumps({"number": number, "filling": "x" * size}))
    assert producer.flush(20) == 0


def test_a_topic_is_created_changed_and_deleted(at, cluster):
    """A topic is created, reconfigured, extended and deleted, each after a preview of the znodes."""
    at.open("topics/new")
    at.fill("Name", "new-topic")
    at.fill("Partitions", "2")
    at.fill("Settings", "retention.ms=86400000")
    at.until_text("create /brokers/topics/new-topic")
    at.press("Create", "button")
    at.until(lambda: at.address == "topic/new-topic")
    at.until(lambda: len(at.all("tbody tr")) == 2)

    at.press("Settings")
    at.press("Edit retention.ms")
    at.fill("Value", "3600000")
    at.choose("Unit", "ms")
    at.until_text("retention.ms = 3600000", "dialog")
    at.confirm("Change")
    at.until(lambda: at.named("Reset retention.ms"))
    at.until_text("3600000")
    at.press("Reset retention.ms")
    at.confirm("Change")
    at.until_text("604800000")

    at.press("Add partitions")
    at.until_text("It has 2.", "dialog")
    at.confirm("Add partitions")
    at.press("Partitions")
    at.until(lambda: len(at.all("tbody tr")) == 3)
    assert call_api(cluster, "/v1/topics/new-topic")["partitions"] == 3

    at.press("Elect preferred leaders")
    at.until_text("Elect the preferred leaders of new-topic?", "dialog")
    at.press("Cancel")

    at.press("Delete")
    at.until_text("to ZooKeeper", "dialog")
    at.fill("Type “new-topic” to continue", "new-topic")
    at.confirm("Delete")
    at.until(lambda: at.address == "topics")
    at.until_text("new-topic is being deleted.", "#notification")


def test_messages_are_produced_browsed_searched_and_followed(at, cluster):
    """Produced messages can be found by offset and by text, are formatted as JSON, and appear in the live tail."""
    topic(cluster, "talk", messages=300)
    at.open("messages/talk/produce")
    at.fill("Key", "k")
    at.fill("Value", '{"said": ["<b>hello</b>"]}')
    at.fill("Headers", "trace: 42")
    at.press("Check only")
    at.until_text("Nothing was written.")
    at.press("Produce", "button")
    at.until_text("at offset 300.")
    at.press("Show it")
    at.press("Details of message 300 of partition 0")
    at.until_text('"said": [\n    "<b>hello</b>"', ".details-row")
    at.until_text("trace", ".details-row")

    at.choose("Order", "Oldest first")
    at.choose("From", "The beginning")
    at.fill("Contains", '"number": 217')
    at.press("Show")
    at.until_text("1 message shown")
    assert '"number":217' in at.text("tbody")

    at.fill("Contains", "")
    at.choose("Partition", "All")
    at.fill("Filter", "value.number >=")
    at.press("Show")
    at.until_text("column", ".wrong")
    assert all("400" in error for error in at.console_errors())
    at.fill("Filter", "has(value.number) && value.number >= 290")
    at.press("Show")
    at.until_text("10 messages shown, 301 searched, the whole range.")
    at.press("Columns")
    at.fill("Fields as columns", "value.number")
    at.keys(Keys.TAB)
    at.press("value.number")
    assert [cell.text for cell in at.all("td.field-column")] == [str(number) for number in range(290, 300)]
    at.press("value.number")
    assert at.all("td.field-column")[0].text == "299"
    link = at.named("NDJSON").get_attribute("href")
    assert "filter=has" in link
    assert "as=ndjson" in link

    at.press("Tail")
    at.until_text("Following.")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    producer.produce("talk", value="the first to come")
    producer.flush(10)
    at.until_text("the first to come")
    at.press("Pause")
    producer.produce("talk", value="the second")
    producer.flush(10)
    at.until_text("1 waiting")
    assert "the second" not in at.text("tbody")
    at.press("Resume")
    at.until_text("the second", "tbody")


def test_a_group_is_shown_reset_and_deleted(at, cluster):
    """A group's page shows its lag and a preview of a reset; a deletion requires typing the group's name."""
    topic(cluster, "read", messages=50)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "a/reader", "log_level": 0}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("read", 0, 20)], asynchronous=False)
    consumer.close()

    at.open("groups")
    at.press("a/reader")
    at.until_text("Messages behind\n30")
    at.press("Reset offsets")
    at.until_text("-20", "dialog tbody")
    at.confirm("Reset")
    at.until_text("Messages behind\n50")
    at.press("Delete")
    at.fill("Type “a/reader” to continue", "a/reader")
    at.confirm("Delete")
    at.until(lambda: at.address == "groups")
    at.until_text("There are no groups.")


def test_a_plan_is_previewed_run_and_watched(at, cluster):
    """A plan that adds replicas has a preview with moves, bytes and brokers, and then shows its progress."""
    topic(cluster, "grows", partitions=2, copies=2, messages=100)
    at.open("plans/new?kind=replication_factor&topic=grows")
    at.until(lambda: at.field("Topics").get_attribute("value") == "grows")
    at.press("Preview")
    at.until_text("Preview")
    at.press("5 writes to ZooKeeper")
    at.until_text("create /kreplica/plans/")
    assert len(at.all("table")) == 2
    assert call_api(cluster, "/v1/topics/grows")["replication_factor"] == 2, "the plan must not have started"
    at.press("Start the plan")
    at.until(lambda: re.match(r"plan/plan-\d+", at.address))
    at.until_text("Completed")
    assert call_api(cluster, "/v1/topics/grows")["replication_factor"] == 3
    plan = at.heading
    at.press("Forget")
    at.press("5 writes to ZooKeeper")
    at.until_text(f"/kreplica/plans/{plan}", "dialog")
    at.press("Cancel")
    at.open("plans")
    at.until_text("100%")


def test_a_plan_is_slowed_and_cancelled(at, cluster):
    """A plan that would take hours is cancelled, and its moves are rolled back."""
    topic(cluster, "heavy", copies=2, messages=300, size=10_000)
    at.open("plans/new?kind=replication_factor&topic=heavy")
    at.fill("Throttle, MB/s per broker", "0.001")
    at.press("Preview")
    at.press("Start the plan")
    at.until_text("Running")
    at.press("Change throttle")
    at.fill("Maximum MB/s per broker", "0.002")
    at.confirm("Change")
    at.until_text("2 kB/s")
    at.press("Why?")
    at.until_text("Waiting for")
    at.driver.back()
    at.press("Cancel plan")
    at.press("Revert the moves that are finished", "label")
    at.confirm("Cancel the plan")
    at.until_text("Cancelled")
    assert call_api(cluster, "/v1/topics/heavy")["replication_factor"] == 2


def test_a_broker_is_cordoned(at):
    """After a preview of the znode, a broker is shown as cordoned, and can be uncordoned."""
    at.open("brokers")
    at.press("Cordon broker 2")
    at.until_text("/kreplica/cordoned/2", "dialog")
    at.confirm("Cordon")
    at.press("Uncordon broker 2")
    at.confirm("Uncordon")
    at.named("Cordon broker 2")
    at.press("Broker 2")
    at.until_text("broker-2", ".table")


def test_a_broker_is_killed_and_another_leads(at, cluster):
    """Without a reload, the overview's card, summary, map and timeline show the failure and the recovery."""
    topic(cluster, "watched", partitions=6)
    at.open("")
    at.until_text("All is well")
    at.until(lambda: len(at.all(".map .cell.leader")) >= 6)
    at.press("Kill broker 3")
    at.until_text("Dead", ".break-cards")
    at.until_text("in-sync replicas")  # under-replicated, or too few for acks=all
    at.until(lambda: len(at.all(".map .cell.offline")) >= 6)
    assert at.all(".map .map-row:nth-child(3) .cell.leader") == []
    at.until_text("roker 3", ".entries")
    at.open("why/partitions/watched/0")
    at.until_text("Decisions")
    at.until_text("roker 3")
    at.open("")
    at.press("Start broker 3")
    at.until_text("All is well")
    at.press("Pause broker 2")
    at.until_text("Paused", ".break-cards")
    at.press("Resume broker 2")
    at.until_text("All is well")


def test_the_timeline_is_live(at, cluster):
    """A new entry appears without a reload; a filter restricts the list to one kind of entry."""
    at.open("timeline")
    at.until_text("new entries appear automatically")
    topic(cluster, "shown-live")
    at.until_text("shown-live", ".entries")
    at.choose("Kind", "topics created")
    at.until(lambda: {chip.text for chip in at.all(".entries .chip")} == {"topics created"})
