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
def view(page, cluster):
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


def test_a_topic_is_created_changed_and_deleted(view, cluster):
    """A topic is created, reconfigured, extended and deleted, each after a preview of the znodes."""
    view.open("topics/new")
    view.fill("Name", "new-topic")
    view.fill("Partitions", "2")
    view.fill("Settings", "retention.ms=86400000")
    view.until_text("create /brokers/topics/new-topic")
    view.press("Create", "button")
    view.until(lambda: view.address == "topic/new-topic")
    view.until(lambda: len(view.all("tbody tr")) == 2)

    view.press("Settings")
    view.press("Edit retention.ms")
    view.fill("Value", "3600000")
    view.choose("Unit", "ms")
    view.until_text("retention.ms = 1 h (3600000 ms)", "dialog")
    view.confirm("Change")
    view.until(lambda: view.named("Reset retention.ms"))
    view.until_text("3600000")
    view.press("Reset retention.ms")
    view.confirm("Change")
    view.until_text("604800000")

    view.press("Add partitions")
    view.until_text("The topic has 2 partitions.", "dialog")
    view.confirm("Add partitions")
    view.press("Partitions")
    view.until(lambda: len(view.all("tbody tr")) == 3)
    assert call_api(cluster, "/v1/topics/new-topic")["partitions"] == 3

    view.press("Elect preferred leaders")
    view.until_text("Elect the preferred leaders of topic “new-topic”?", "dialog")
    view.press("Cancel")

    view.press("Delete topic")
    view.until_text("to ZooKeeper", "dialog")
    view.fill("Type “new-topic” to continue", "new-topic")
    view.confirm("Delete")
    view.until(lambda: view.address == "topics")
    view.until_text("The topic new-topic is being deleted.", "#notification")
    # The page of the topic may have asked for its partitions while it was being deleted.
    assert view.console_errors(["/v1/topics/new-topic/partitions"]) == []


def test_messages_are_produced_browsed_searched_and_followed(view, cluster):
    """Produced messages can be found by offset and by text, are formatted as JSON, and appear in the live tail."""
    topic(cluster, "talk", messages=300)
    view.open("messages/talk/produce")
    view.fill("Key", "k")
    view.fill("Value", '{"said": ["<b>hello</b>"]}')
    view.fill("Headers", "trace: 42")
    view.press("Check only")
    view.until_text("Nothing was written.")
    view.press("Produce", "button")
    view.until_text("at offset 300.")
    view.press("Show it")
    view.press("Details of message 300 of partition 0")
    view.until_text('"said": [\n    "<b>hello</b>"', ".details-row")
    view.until_text("trace", ".details-row")

    view.choose("Order", "Oldest first")
    view.choose("From", "The beginning")
    view.fill("Contains", '"number": 217')
    view.press("Show")
    view.until_text("1 message shown")
    assert '"number":217' in view.text("tbody")

    view.fill("Contains", "")
    view.choose("Partition", "All")
    view.fill("Filter", "value.number >=")
    view.press("Show")
    view.until_text("the expression is incomplete: it ends after `>=`", ".wrong")
    assert all("400" in error for error in view.console_errors())
    view.fill("Filter", "has(value.number) && value.number >= 290")
    view.press("Show")
    view.until_text("10 messages shown, 301 searched, the whole range.")
    view.press("Columns")
    view.fill("Fields as columns", "value.number")
    view.keys(Keys.TAB)
    view.press("value.number")
    assert [cell.text for cell in view.all("td.field-column")] == [str(number) for number in range(290, 300)]
    view.press("value.number")
    assert view.all("td.field-column")[0].text == "299"
    link = view.named("NDJSON").get_attribute("href")
    assert "filter=has" in link
    assert "as=ndjson" in link

    view.press("Tail")
    view.until_text("Following.")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    producer.produce("talk", value="the first to come")
    producer.flush(10)
    view.until_text("the first to come")
    view.press("Pause")
    producer.produce("talk", value="the second")
    producer.flush(10)
    view.until_text("1 waiting")
    assert "the second" not in view.text("tbody")
    view.press("Resume")
    view.until_text("the second", "tbody")


def test_a_group_is_shown_reset_and_deleted(view, cluster):
    """A group's page shows its lag and a preview of a reset; a deletion requires typing the group's name."""
    topic(cluster, "read", messages=50)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "a/reader", "log_level": 0}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("read", 0, 20)], asynchronous=False)
    consumer.close()

    view.open("groups")
    view.press("a/reader")
    view.until_text("Messages behind\n30")
    view.press("Reset offsets")
    view.until_text("-20", "dialog tbody")
    view.confirm("Reset")
    view.until_text("Messages behind\n50")
    view.press("Delete")
    view.until_text("Delete group “a/reader”?", "dialog")
    view.fill("Type “a/reader” to continue", "a/reader")
    view.confirm("Delete")
    view.until(lambda: view.address == "groups")
    view.until_text("There are no groups.")


def test_a_plan_is_previewed_run_and_watched(view, cluster):
    """A plan that adds replicas has a preview with moves, bytes and brokers, and then shows its progress."""
    topic(cluster, "grows", partitions=2, copies=2, messages=100)
    view.open("plans/new?kind=replication_factor&topic=grows")
    view.until(lambda: view.field("Topics").get_attribute("value") == "grows")
    view.press("Preview")
    view.until_text("Preview")
    view.press("5 writes to ZooKeeper")
    view.until_text("create /kreplica/plans/")
    assert len(view.all("table")) == 2
    assert call_api(cluster, "/v1/topics/grows")["replication_factor"] == 2, "the plan must not have started"
    view.press("Start the plan")
    view.until(lambda: re.match(r"plan/plan-\d+", view.address))
    view.until_text("Completed")
    assert call_api(cluster, "/v1/topics/grows")["replication_factor"] == 3
    plan = view.heading
    view.press("Forget")
    view.press("5 writes to ZooKeeper")
    view.until_text(f"/kreplica/plans/{plan}", "dialog")
    view.press("Cancel")
    view.open("plans")
    view.until_text("100%")


def test_a_plan_is_slowed_and_cancelled(view, cluster):
    """A plan that would take hours is cancelled, and its moves are rolled back."""
    topic(cluster, "heavy", copies=2, messages=300, size=10_000)
    view.open("plans/new?kind=replication_factor&topic=heavy")
    view.fill("Throttle (MB/s per broker)", "0.001")
    view.press("Preview")
    view.press("Start the plan")
    view.until_text("Running")
    view.press("Change throttle")
    view.fill("Maximum MB/s per broker", "0.002")
    view.confirm("Change")
    view.until_text("2 kB/s")
    view.press("Why?")
    view.until_text("Waiting for")
    view.driver.back()
    view.press("Cancel plan")
    view.press("Revert the moves that are finished", "label")
    view.confirm("Cancel the plan")
    view.until_text("Cancelled")
    assert call_api(cluster, "/v1/topics/heavy")["replication_factor"] == 2


def test_a_broker_is_cordoned(view):
    """After a preview of the znode, a broker is shown as cordoned, and can be uncordoned."""
    view.open("brokers")
    view.press("Cordon broker 2")
    view.until_text("/kreplica/cordoned/2", "dialog")
    view.confirm("Cordon")
    view.press("Uncordon broker 2")
    view.confirm("Uncordon")
    view.named("Cordon broker 2")
    view.press("Broker 2")
    view.until_text("broker-2", ".table")


def test_a_broker_is_killed_and_another_leads(view, cluster):
    """Without a reload, the overview's card, summary, map and timeline show the failure and the recovery."""
    topic(cluster, "watched", partitions=6)
    view.open("")
    view.until_text("All is well")
    view.until(lambda: len(view.all(".map .cell.leader")) >= 6)
    view.press("Kill broker 3")
    view.confirm("Kill")
    view.until_text("Dead", ".break-cards")
    view.until_text("under-replicated")
    view.until(lambda: len(view.all(".map .cell.offline")) >= 6)
    assert view.all(".map .map-row:nth-child(3) .cell.leader") == []
    view.until_text("roker 3", ".entries")
    view.open("why/partitions/watched/0")
    view.until_text("Decisions")
    view.until_text("roker 3")
    view.open("")
    view.press("Start broker 3")
    view.until_text("All is well")
    view.press("Pause broker 2")
    view.until_text("Paused", ".break-cards")
    view.press("Resume broker 2")
    view.until_text("All is well")


def test_the_timeline_is_live(view, cluster):
    """A new entry appears without a reload; a filter restricts the list to one kind of entry."""
    view.open("timeline")
    view.until_text("new entries appear automatically")
    topic(cluster, "shown-live")
    view.until_text("shown-live", ".entries")
    view.choose("Kind", "topics created")
    view.until(lambda: {chip.text for chip in view.all(".entries .chip")} == {"topics created"})
