"""Every choice in the dialogs for topics, groups and brokers: the preview, and the writes."""

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from .dialogs import (
    call_api,
    check_writes,
    confirm_writes,
    dialog_cluster,
    partitions_of,
    preview_rows,
    previewed_writes,
    topic,
    wait_for_api,
)

pytestmark = pytest.mark.needs_program("chromium", "chromedriver")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with dialog_cluster(tmp_path_factory.mktemp("dialogs")) as started:
        yield started


@pytest.fixture
def view(page, cluster):
    page.base = cluster.admin_url
    yield page
    assert page.console_errors() == []


def put_time(view, label, seconds):
    """Set a date and time field to a time in UTC by script, because typing depends on the browser's language."""
    script = """
        arguments[0].value = new Date(arguments[1] * 1000).toISOString().slice(0, 19);
        arguments[0].dispatchEvent(new Event("input", {bubbles: true}));"""
    view.driver.execute_script(script, view.field(label), int(seconds))


RESETS = (
    ("The beginning", None, None, 0),
    ("The end", None, None, 40),
    ("A time", "Time", lambda: time.time() - 2 * 86_400, 10),
    ("A duration ago", "Minutes ago", 60, 30),
    ("Shift by a number of messages", "Messages (negative: back)", -3, 32),
    ("An offset", "Offset", 7, 7),
)
"""For each target of a reset: its text, the label and value of its field, and the resulting offset."""


@pytest.fixture(scope="module")
def _records(cluster):
    """Create two topics with records of different ages."""
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
def test_a_reset_writes_the_previewed_offsets(view, cluster, text, label, value, after):
    """A reset commits the previewed offset; topics that are not selected keep their offsets."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "resets", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(name, 0, 35) for name in ("chosen", "other")], asynchronous=False)

    view.open("group/resets")
    view.press("Reset offsets")
    view.choose("Reset to", text)
    shown = [node.text for node in view.all("dialog label") if node.is_displayed()]
    assert shown == ["Reset to", *([label] if label else []), "Topics"]
    if callable(value):
        put_time(view, label, value())
    elif label is not None:
        if label in ("Offset", "Messages (negative: back)"):
            view.until(lambda: not view.all("dialog .preview tbody"), "no preview of a value that was not entered")
        view.fill(label, str(value))
    view.fill("Topics", "chosen")
    assert [row[:3] for row in preview_rows(view)] == [["chosen-0", "35", str(after)]]
    view.confirm("Reset")
    view.until_text("were reset.", "#news, #notifications, [role=status]")
    committed = consumer.committed([TopicPartition(name, 0) for name in ("chosen", "other")], timeout=10)
    consumer.close()
    assert [each.offset for each in committed] == [after, 35]


def test_preferred_leaders_are_elected(view, cluster):
    """An election makes the first replica the leader, from the topic's dialog or from an explanation."""
    for name in ("elected", "explained"):
        topic(cluster, name, {"0": [3, 1]})
    call_api(cluster, "/v1/standalone/brokers/3/kill", "POST")
    deadline = time.monotonic() + 20
    for name in ("elected", "explained"):
        while call_api(cluster, f"/v1/topics/{name}/partitions")["partitions"][0]["leader"] != 1:
            assert time.monotonic() < deadline
    call_api(cluster, "/v1/standalone/brokers/3/start", "POST")
    for name in ("elected", "explained"):
        while sorted(call_api(cluster, f"/v1/topics/{name}/partitions")["partitions"][0]["isr"]) != [1, 3]:
            assert time.monotonic() < deadline + 20
    view.open("topic/elected")
    view.press("Elect preferred leaders")
    view.until_text("Elect the preferred leaders of topic “elected”?", "dialog")
    view.confirm("Elect")
    view.until(lambda: call_api(cluster, "/v1/topics/elected/partitions")["partitions"][0]["leader"] == 3)
    assert call_api(cluster, "/v1/topics/explained/partitions")["partitions"][0]["leader"] == 1
    view.open("why/partitions/explained/0")
    view.press("Execute: Make broker 3 the leader.")
    view.until_text("Make broker 3 the leader.", "dialog h2")
    confirm_writes(view, cluster, "Execute")
    view.until(lambda: call_api(cluster, "/v1/topics/explained/partitions")["partitions"][0]["leader"] == 3)


def test_a_cordon_is_written_and_removed(view, cluster):
    view.open("broker/2")
    view.press("Cordon")
    view.until_text("/kreplica/cordoned/2", "dialog")
    view.confirm("Cordon")
    view.until(lambda: call_api(cluster, "/v1/brokers/2")["cordoned"])
    view.press("Uncordon")
    view.confirm("Uncordon")
    view.until(lambda: not call_api(cluster, "/v1/brokers/2")["cordoned"])


# --- topics -----------------------------------------------------------------------------------------------------------


def config_of(cluster, path, name):
    (row,) = [each for each in call_api(cluster, f"/v1/configs/{path}")["configs"] if each["name"] == name]
    return row


def create_topic(view, cluster, name):
    """Press the button, check that the new topic has the previewed writes, and return them."""
    writes = previewed_writes(view)
    view.press("Create", "button")
    view.until(lambda: view.address == f"topic/{name}")
    check_writes(cluster, writes)
    return writes


def test_a_topic_is_created_extended_and_deleted(view, cluster):
    """Topics are created with and without optional fields, extended, and deleted after typing the name."""
    view.open("topics/new")
    for label, text in {"Name": "full", "Partitions": "2", "Replication factor": "1"}.items():
        view.fill(label, text)
    view.fill("Settings", "retention.ms=86400000\ncleanup.policy=compact")
    view.until_text("2 partitions with 1 replica each.")
    paths = [path for _, path, _ in create_topic(view, cluster, "full")]
    assert paths == ["/config/topics/full", "/brokers/topics/full"]
    assert [len(each["replicas"]) for each in partitions_of(cluster, "full")] == [1, 1]
    values = {name: config_of(cluster, "topics/full", name)["value"] for name in ("retention.ms", "cleanup.policy")}
    assert values == {"retention.ms": "86400000", "cleanup.policy": "compact"}

    view.open("topics/new")
    view.fill("Name", "default")
    view.until_text("1 partition with 2 replicas each.")
    create_topic(view, cluster, "default")
    assert [len(each["replicas"]) for each in partitions_of(cluster, "default")] == [2]

    view.press("Add partitions")
    view.until_text("The topic has 1 partition.", "dialog")
    view.fill("New number of partitions", "3")
    assert [path for _, path, _ in confirm_writes(view, cluster, "Add partitions")] == ["/brokers/topics/default"]
    assert len(partitions_of(cluster, "default")) == 3

    view.press("Delete topic")
    view.fill("Type “default” to continue", "default")
    assert [path for _, path, _ in confirm_writes(view, cluster, "Delete")] == ["/admin/delete_topics/default"]
    view.until(lambda: view.address == "topics")
    wait_for_api(cluster, "/v1/topics?search=default", lambda found: found["topics"] == [])
    # The page of the topic may have asked for its partitions while it was being deleted.
    assert view.console_errors(["/v1/topics/default/partitions"]) == []


VALUES = (
    ("retention.ms", "1500", "ms", "1500", "1500 ms"),
    ("retention.ms", "90", "s", "90000", "90 s (90000 ms)"),
    ("retention.ms", "1.5", "min", "90000", ""),
    ("retention.ms", "36", "h", "129600000", "36 h (129600000 ms)"),
    ("retention.ms", "-1", "ms", "-1", "unlimited (-1)"),
    ("retention.ms", "2", "d", "172800000", "2 d (172800000 ms)"),
    ("retention.bytes", "5000", "B", "5000", "5000 bytes"),
    ("retention.bytes", "3", "KiB", "3072", "3 KiB (3072 bytes)"),
    ("retention.bytes", "2", "MiB", "2097152", "2 MiB (2097152 bytes)"),
    ("retention.bytes", "1", "GiB", "1073741824", "1 GiB (1073741824 bytes)"),
    ("unclean.leader.election.enable", "true", None, "true", "true"),
    ("unclean.leader.election.enable", "false", None, "false", "false"),
    ("compression.type", "zstd", None, "zstd", "zstd"),
)
"""Setting, value and unit as entered, the value that is written, and as it is shown."""


def edit(view, name, value, unit=None, *, is_choice=False):
    view.press(f"Edit {name}")
    if is_choice:
        view.choose("Value", value)
    else:
        view.fill("Value", value)
    if unit is not None:
        view.choose("Unit", unit)


@pytest.mark.soak
def test_a_setting_of_a_topic_is_changed_in_each_unit_and_reset(view, cluster):
    topic(cluster, "configured", {"0": [1, 2]})
    view.open("topic/configured/settings")
    for name, value, unit, written, shown in VALUES:
        if config_of(cluster, "topics/configured", name)["value"] == written:
            continue  # 1.5 min is 90 s
        edit(view, name, value, unit, is_choice=unit is None)
        view.until_text(f"{name} = {shown}", "dialog")
        assert "/config/topics/configured" in [path for _, path, _ in confirm_writes(view, cluster, "Change")]
        assert config_of(cluster, "topics/configured", name)["value"] == written
        view.until_text(f"{name} of configured is now {shown}.", "#news, #notifications, [role=status]")
        # The next dialog starts with the value in the table.
        view.until(lambda: any(name in row.text and shown in row.text for row in view.all("tbody tr")), shown)  # noqa: B023
    view.press("Edit cleanup.policy")
    view.press("compact", "dialog label")
    view.until_text("cleanup.policy = compact,delete", "dialog")
    confirm_writes(view, cluster, "Change")
    assert config_of(cluster, "topics/configured", "cleanup.policy")["value"] == "compact,delete"
    view.press("Edit max.compaction.lag.ms")
    view.until_text("Default: unlimited. Allowed: a whole number, at least 1.", "dialog")
    view.press("Cancel")
    view.press("Reset retention.ms")
    view.until_text("Reset setting “retention.ms” to its default?", "dialog")
    confirm_writes(view, cluster, "Change")
    assert config_of(cluster, "topics/configured", "retention.ms")["is_default"]
    assert config_of(cluster, "topics/configured", "retention.bytes")["value"] == "1073741824"


def test_a_setting_of_a_broker_is_changed_and_reset(view, cluster):
    view.open("broker/2/settings")
    view.press("Only changed settings", "label")
    edit(view, "log.retention.ms", "2", "d")
    view.until_text("log.retention.ms = 2 d (172800000 ms)", "dialog")
    assert "/config/brokers/2" in [path for _, path, _ in confirm_writes(view, cluster, "Change")]
    value = lambda _: config_of(cluster, "brokers/2", "log.retention.ms")["value"]  # noqa: E731
    wait_for_api(cluster, "/v1/configs/brokers/2", lambda found: value(found) == "172800000")
    view.press("Reset log.retention.ms")
    confirm_writes(view, cluster, "Change")
    wait_for_api(cluster, "/v1/configs/brokers/2", lambda found: value(found) != "172800000")


def test_a_group_is_deleted(view, cluster):
    """A deleted group has no offsets; another group remains."""
    topic(cluster, "grouped", {"0": [1, 2]})
    for group in ("old", "other"):
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})
        consumer.commit(offsets=[TopicPartition("grouped", 0, 0)], asynchronous=False)
        consumer.close()
    view.open("group/old")
    view.press("Delete")
    view.until_text("Its committed offsets are lost", "dialog")
    view.fill("Type “old” to continue", "old")
    view.confirm("Delete")
    names = [row["group"] for row in call_api(cluster, "/v1/groups")["groups"]]
    assert "old" not in names
    assert "other" in names


# --- records ----------------------------------------------------------------------------------------------------------

DELETIONS = (
    ("Records before an offset", "Offset", 3, "1", [0, 3]),
    ("Records before a time", "Time", lambda: time.time() - 2 * 86_400, "All", [10, 10]),
    ("Records older than", "Hours", 1, "All", [30, 30]),
    ("All records", None, None, "0", [40, 30]),
)
"""For each choice: its text, the label and value of its field, the partition, and the resulting start offsets."""


def test_each_choice_of_a_deletion_of_records(view, cluster):
    """After each kind of deletion, the start offsets are those of the preview, and the topic still exists."""
    topic(cluster, "emptied", {"0": [1, 2], "1": [2, 1]})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    now = time.time()
    for count, age_s in ((10, 3 * 86_400), (20, 7_200), (10, 0)):
        for number in range(2 * count):
            producer.produce("emptied", value="v", partition=number % 2, timestamp=int((now - age_s) * 1000))
    assert producer.flush(20) == 0
    view.open("topic/emptied")
    view.until_text("2", ".numbers")
    for text, label, value, partition, after in DELETIONS:
        view.press("Delete records")
        view.choose("Delete", text)
        if callable(value):
            put_time(view, label, value())
        elif label is not None:
            view.fill(label, str(value))
        view.choose("Partition", partition)
        shown = preview_rows(view)
        view.until_text("First offset before", "dialog thead")
        view.until_text("Disk space is freed later", "dialog .preview")
        rows = [number for number in (0, 1) if partition in ("All", str(number))]
        assert [(row[0], row[2]) for row in shown] == [(str(number), str(after[number])) for number in rows]
        view.fill("Type “emptied” to continue", "emptied")
        view.confirm("Delete records")
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "x", "log_level": 0})
        starts = [consumer.get_watermark_offsets(TopicPartition("emptied", number), timeout=10)[0] for number in (0, 1)]
        consumer.close()
        assert starts == after


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_fault_of_the_broker_that_serves_the_page_is_confirmed(view, cluster):
    """No fault is injected into the broker that serves the page without a confirmation."""

    def state():
        rows = call_api(cluster, "/v1/standalone")["brokers"]
        return next(row["state"] for row in rows if row["broker_id"] == 3)

    view.base = wait_for_api(cluster, "/v1/brokers/3", lambda found: found["admin_url"])["admin_url"].rstrip("/")
    view.open("")
    view.press("Disconnect broker 3")
    view.until_text("Broker 3 serves this page", "dialog")
    view.press("Cancel")
    view.until(lambda: not view.all("dialog"))
    assert state() == "running"
    view.press("Disconnect broker 3")
    view.confirm("Continue")
    view.until(lambda: state() == "cut")
    call_api(cluster, "/v1/standalone/brokers/3/mend", "POST")
    view.until(lambda: state() == "running")
    view.console_errors()  # requests to the disconnected broker
