"""The twenty tasks of ``docs/explanation/twenty-tasks.md``, each with the number of clicks on the page."""

import json
import re
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from .contract_server import ContractServer
from .contract_world import World
from .dialogs import call_api, dialog_cluster, wait_for_api

pytestmark = [pytest.mark.needs_program("chromium", "chromedriver"), pytest.mark.soak]

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "twenty-tasks.md").read_text()
ROW = r"^\| (\d+) \| ([^|]+) \| (\d+): [^|]* \| [^|]* \| ([^|]*) \| ([^|]*) \|$"
TASKS = {text.strip(): int(clicks) for _, text, clicks, *_ in re.findall(ROW, PAGE, re.MULTILINE)}
OTHERS = {text.strip(): others for _, text, _, *others in re.findall(ROW, PAGE, re.MULTILINE)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with dialog_cluster(tmp_path_factory.mktemp("tasks")) as started:
        for name in ("orders", "grown", "emptied", "deleted", "compared"):
            call_api(started, "/v1/topics", "POST", {"name": name, "partitions": 1, "replication_factor": 2})
        call_api(started, "/v1/topics", "POST", {"name": "refused", "assignment": {"0": [3, 2]},
                                              "configs": {"min.insync.replicas": "2"}})  # fmt: skip
        producer = Producer({"bootstrap.servers": started.bootstrap_servers, "log_level": 0})
        for number in range(200):
            for name in ("orders", "emptied"):
                producer.produce(name, json.dumps({"total": number}), key=str(number))
        assert producer.flush(20) == 0
        consumer = Consumer({"bootstrap.servers": started.bootstrap_servers, "group.id": "kitchen", "log_level": 0})
        consumer.commit(offsets=[TopicPartition("orders", 0, 150)], asynchronous=False)
        consumer.close()
        yield started


class ClickCounter:
    """Uses a page and counts clicks: one per button or field without the focus, two per choice in a list."""

    def __init__(self, view):
        self.view = view
        self.clicks = 0

    def press(self, *names, tags="button, a, summary"):
        for name in names:
            self.view.press(name, tags)
            self.clicks += 1

    def press_in_row(self, row, name):
        script = """return [...document.querySelectorAll('tbody tr')]
            .find(row => row.firstElementChild.innerText.trim() === arguments[0])
            ?.querySelectorAll('a, button').values().find(node => node.innerText.trim() === arguments[1])"""
        self.view.until(lambda: self.view.driver.execute_script(script, row, name), f"{name} of {row}").click()
        self.clicks += 1

    def choose(self, label, text):
        self.view.choose(label, text)
        self.clicks += 2

    def fill(self, label, text):
        field = self.view.field(label)
        self.clicks += field != self.view.driver.switch_to.active_element
        self.view.fill(label, text)

    def confirm(self, name):
        self.view.confirm(name)
        self.clicks += 1


@pytest.fixture
def task(page, cluster):
    """Return a function that starts a task on the overview; the task must take the documented number of clicks."""
    page.base = cluster.admin_url

    @contextmanager
    def start(text):
        page.open("")
        page.until_text("Load")
        user = ClickCounter(page)
        yield user
        assert user.clicks == TASKS[text], text
        page.console_errors()

    return start


def test_the_table_has_twenty_tasks():
    """No task takes more clicks than in any other console that supports it."""
    assert len(TASKS) == 20
    for text, clicks in TASKS.items():
        for other in OTHERS[text]:
            found = re.match(r"(?:at least )?(\d+)", other)
            assert found is None or clicks <= int(found[1]), text


def test_tasks_with_messages(task):
    with task("Find the messages whose field `total` is above 100") as user:
        user.press("Topics")
        user.press_in_row("orders", "Messages")
        user.fill("Filter", "value.total > 100")
        user.press("Show")
        user.view.until_text("50 messages shown")
    with task("Read Avro messages, decoded with the schema registry") as user:
        user.press("Topics")
        user.press_in_row("orders", "Messages")
        user.view.until_text("50 messages shown")
    with task("Produce a message with a key") as user:
        user.press("Topics")
        user.press_in_row("orders", "Messages")
        user.press("Produce")
        user.fill("Key", "k")
        user.fill("Value", "v")
        user.press("Produce", tags="button")
        user.view.until_text("Written to partition 0 at offset 200.")
    with task("Follow new messages") as user:
        user.press("Topics")
        user.press_in_row("orders", "Messages")
        user.press("Tail")
        user.view.until_text("Following.")
    with task("Download the messages of a topic") as user:
        user.press("Topics")
        user.press_in_row("orders", "Messages")
        user.press("NDJSON")


def test_tasks_with_topics(task, cluster):
    with task("Drain a broker") as user:
        user.press("Brokers", "Broker 1", "Drain…")
        user.press("Preview", tags="button")
        user.press("Start the plan")
        wait_for_api(cluster, "/v1/brokers/1", lambda found: found["replicas"] == 0)
    call_api(cluster, "/v1/brokers/1/cordon", "DELETE")
    with task("Create a topic with 6 partitions") as user:
        user.press("Topics", "Create topic")
        user.fill("Name", "made")
        user.fill("Partitions", "6")
        user.view.until_text("6 partitions with")
        user.press("Create")
        user.view.until(lambda: user.view.address == "topic/made")
    with task("Keep the messages of a topic for 2 days") as user:
        user.press("Topics", "orders", "Settings", "Edit retention.ms")
        user.fill("Value", "2")
        user.confirm("Change")
        user.view.until_text("172800000")
    with task("Compare the settings of two topics") as user:
        user.press("Topics", "orders", "Settings")
        user.view.until_text("172800000")
        user.press("Topics", "compared", "Settings")
        user.view.until_text("604800000")
    with task("Grow a topic to 8 partitions") as user:
        user.press("Topics", "grown")
        user.view.until_text("In sync")
        user.press("Add partitions")
        user.fill("New number of partitions", "8")
        user.confirm("Add partitions")
        wait_for_api(cluster, "/v1/topics/grown", lambda found: found["partitions"] == 8)
    with task("Raise the replication factor of a topic to 3") as user:
        user.press("Plans", "Create a plan")
        user.view.one("input[value=replication_factor]").click()
        user.clicks += 1
        user.fill("Topics", "compared")
        user.press("Preview", tags="button")
        user.press("Start the plan")
        wait_for_api(cluster, "/v1/topics/compared", lambda found: found["replication_factor"] == 3)
    with task("Delete all messages of a topic") as user:
        user.press("Topics", "emptied", "Delete records")
        user.fill("Type “emptied” to continue", "emptied")
        user.confirm("Delete records")
        messages = call_api(cluster, "/v1/topics/emptied/messages")["messages"]
        assert messages == []
    with task("Delete a topic") as user:
        user.press("Topics", "deleted", "Delete topic")
        user.fill("Type “deleted” to continue", "deleted")
        user.confirm("Delete")
        wait_for_api(cluster, "/v1/topics?search=deleted", lambda found: found["topics"] == [])


def test_tasks_with_groups(task, cluster):
    with task("See which groups read a topic, and their lag") as user:
        user.press("Topics", "orders", "Groups")
        # The tab has the same name as an entry in the navigation above it.
        user.view.driver.execute_script("[...document.querySelectorAll('main nav a')].at(1).click()")
        user.view.until_text("kitchen")
    with task("See since when a group has been falling behind") as user:
        user.press("Groups", "kitchen", "6 hours")
        user.view.until_text("Lag", ".chart h3")
    with task("Reset a group to the beginning") as user:
        user.press("Groups", "kitchen", "Reset offsets")
        user.view.until_text("kitchen", "dialog")
        user.confirm("Reset")
        wait_for_api(cluster, "/v1/groups/kitchen/lag", lambda found: found["partitions"][0]["committed_offset"] == 0)
    with task("Reset a group to a time") as user:
        user.press("Groups", "kitchen", "Reset offsets")
        user.choose("Reset to", "A time")
        field = user.view.field("Time")
        user.clicks += 1
        script = """arguments[0].value = '2030-01-01T00:00:00';
            arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"""
        user.view.driver.execute_script(script, field)
        user.confirm("Reset")
        wait_for_api(cluster, "/v1/groups/kitchen/lag", lambda found: found["lag"] == 0)


def test_tasks_with_faults(task, cluster):
    with task("See why a user may not read a topic") as user:
        user.press("Access")
        user.fill("User", "User:alice")
        user.fill("Resource name", "orders")
        user.press("Explain")
        user.view.until_text("User:alice may not Read topic 'orders'")
    call_api(cluster, "/v1/standalone/brokers/2/kill", "POST")
    wait_for_api(cluster, "/v1/health", lambda found: found["state"] == "bad")
    with task("See why writes to a topic are rejected (NOT_ENOUGH_REPLICAS)") as user:
        user.view.until_text("refused")
        user.view.until(lambda: user.view.all(".health a, .faults a"))[0].click()
        user.clicks += 1
        user.view.until_text("broker 2")


def test_task_with_a_full_disk(page):
    world = World(topics=2, partitions=1)
    world.faults = ["Broker 1: the disk of log directory /a is full."]
    with ContractServer(world) as server:
        page.base = server.url
        page.open("")
        user = ClickCounter(page)
        user.press(f"Why? {world.faults[0]}")
        page.until(lambda: page.heading == "Diagnosis of broker 1")
        page.until_text("Possible actions")
        assert user.clicks == TASKS["See what to do about a full disk"]
        page.console_errors()
