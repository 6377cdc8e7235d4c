"""Every choice in the dialogs for ACLs, users, quotas and keys, and in the form that produces a message."""

import base64
import json

import pytest
from confluent_kafka import Consumer, TopicPartition
from selenium.webdriver.common.keys import Keys

from .accessibility import violations
from .dialogs import call_api, confirm_writes, dialog_cluster, wait_for_api

pytestmark = pytest.mark.needs_program("chromium", "chromedriver")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with dialog_cluster(tmp_path_factory.mktemp("access"), brokers=1) as started:
        yield started


@pytest.fixture
def view(page, cluster):
    page.base = cluster.admin_url
    yield page
    assert page.console_errors() == []


def options(view, label):
    """Return the texts of a field's options."""
    return view.driver.execute_script("return [...arguments[0].options].map(each => each.text)", view.field(label))


def paths(writes):
    return [path for _, path, _ in writes]


# --- ACLs -------------------------------------------------------------------------------------------------------------

ACLS = (
    ("Allow", "Read", "Topic", "orders", False, "*", "/kafka-acl/Topic/orders"),
    ("Deny", "Write", "Topic", "*", False, "*", "/kafka-acl/Topic/*"),
    ("Allow", "Create", "Topic", "made", False, "*", "/kafka-acl/Topic/made"),
    ("Allow", "Describe configs", "Topic", "pre", True, "10.0.0.1", "/kafka-acl-extended/prefixed/Topic/pre"),
    ("Allow", "Delete", "Group", "kitchen", False, "*", "/kafka-acl/Group/kitchen"),
    ("Allow", "All", "Group", "app-", True, "*", "/kafka-acl-extended/prefixed/Group/app-"),
    ("Allow", "Alter", "Cluster", None, False, "*", "/kafka-acl/Cluster/kafka-cluster"),
    ("Allow", "Alter configs", "Cluster", None, False, "*", "/kafka-acl/Cluster/kafka-cluster"),
    ("Deny", "Cluster action", "Cluster", None, False, "*", "/kafka-acl/Cluster/kafka-cluster"),
    ("Allow", "Idempotent write", "Cluster", None, False, "*", "/kafka-acl/Cluster/kafka-cluster"),
    ("Allow", "Describe", "Transactional ID", "tx", False, "*", "/kafka-acl/TransactionalId/tx"),
)
"""Permission, operation, resource, name, True if the name is a prefix, host, and the znode."""


@pytest.mark.soak
def test_each_choice_of_an_acl_is_written(view, cluster):
    """The dialog offers all values, its preview shows the znode, and the resulting ACL is the one entered."""
    view.open("acls")
    written = []
    for number, (permission, operation, resource, name, is_prefix, host, path) in enumerate(ACLS):
        view.press("Create ACL")
        if number == 0:
            assert violations(view) == []
            offered = [options(view, label) for label in ("Permission", "Operation")]
            offered.append(options(view, "Resource"))
        view.fill("Principal", "User:alice")
        for label, text in (("Permission", permission), ("Operation", operation)):
            view.choose(label, text)
        view.choose("Resource", resource)
        if name is not None:
            view.fill("Resource name", name)
        if is_prefix:
            view.press("All names that start with this name", "label")
        view.fill("Host", host)
        assert path in paths(confirm_writes(view, cluster, "Create"))
        written.append(
            {
                "resource_type": resource.lower().replace(" ", "_"),
                "resource_name": "kafka-cluster" if name is None else name,
                "pattern_type": "prefixed" if is_prefix else "literal",
                "principal": "User:alice",
                "host": host,
                "operation": operation.lower().replace(" ", "_"),
                "permission": permission.lower(),
            }
        )
    known = wait_for_api(cluster, "/v1/acls", lambda found: len(found["acls"]) == len(ACLS))["acls"]
    order = json.dumps
    assert sorted(known, key=order) == sorted(written, key=order)
    for index, used in enumerate(("permission", "operation", "resource_type")):
        entered = {acl[used] for acl in written}
        assert {text.lower().replace(" ", "_") for text in offered[index]} == entered

    view.open("acls?type=topic&name=orders&principal=User:alice")
    view.until(lambda: [row.text for row in view.all("tbody tr") if "orders" in row.text])
    view.driver.execute_script("""
        [...document.querySelectorAll('tbody tr')].find(row => row.innerText.includes('topic orders'))
            .querySelector('button').click()""")
    view.until_text("Allow User:alice: Read on topic orders", "dialog")
    confirm_writes(view, cluster, "Delete")
    left = wait_for_api(cluster, "/v1/acls", lambda found: len(found["acls"]) == len(ACLS) - 1)["acls"]
    assert written[0] not in left


# --- users ------------------------------------------------------------------------------------------------------------


def test_a_user_is_created_changed_and_deleted(view, cluster):
    """A user has credentials for the chosen mechanism, gets a new password, and is deleted after typing its name."""

    def credentials(user):
        return cluster.zookeeper.get(f"/config/users/{user}")[0].decode()

    view.open("users")
    for user, mechanism in (("alice", "SCRAM-SHA-512"), ("bob", "SCRAM-SHA-256")):
        view.press("Create user")
        view.fill("User", user)
        view.fill("New password", "first-password")
        view.fill("Repeat the password", "first-password")
        assert options(view, "Mechanism") == ["SCRAM-SHA-512", "SCRAM-SHA-256"]
        view.choose("Mechanism", mechanism)
        assert violations(view) == []
        view.confirm("Create")
        assert mechanism in credentials(user)
    wait_for_api(cluster, "/v1/users", lambda found: len(found["users"]) == 2)
    users = {row["user"]: row["mechanisms"][0]["mechanism"] for row in call_api(cluster, "/v1/users")["users"]}
    assert users == {"alice": "SCRAM-SHA-512", "bob": "SCRAM-SHA-256"}

    before = credentials("alice")
    view.open("users")
    view.press("Change password")
    view.until_text("Change the password of user “alice”", "dialog")
    view.fill("New password", "second-password")
    view.fill("Repeat the password", "second-password")
    view.confirm("Change")
    assert credentials("alice") != before
    assert "second-password" not in credentials("alice")

    view.driver.execute_script("""
        [...document.querySelectorAll('tbody tr')].find(row => row.innerText.includes('bob'))
            .querySelector('button:last-child').click()""")
    view.until_text("Delete user “bob”?", "dialog")
    view.fill("Type “bob” to continue", "bob")
    confirm_writes(view, cluster, "Delete")
    wait_for_api(cluster, "/v1/users", lambda found: [row["user"] for row in found["users"]] == ["alice"])


# --- quotas -----------------------------------------------------------------------------------------------------------

QUOTAS = (
    ("User", {"User": "alice"}, "Produced bytes (bytes/s)", "1000", "/config/users/alice"),
    ("User", {"User": ""}, "Fetched bytes (bytes/s)", "2000", "/config/users/<default>"),
    ("Client ID", {"Client ID": "app"}, "Request time (% of the event loop)", "12.5", "/config/clients/app"),
    ("Client ID", {"Client ID": ""}, "Created and deleted partitions (partitions/s)", "2.5",
     "/config/clients/<default>"),
    ("Client ID of a user", {"User": "alice", "Client ID": "app"}, "Fetched bytes (bytes/s)", "7",
     "/config/users/alice/clients/app"),
    ("IP address", {"IP address or host": "10.0.0.1"}, "New connections (connections/s)", "50", "/config/ips/10.0.0.1"),
    ("IP address", {"IP address or host": ""}, "New connections (connections/s)", "60", "/config/ips/<default>"),
)  # fmt: skip
"""Kind of entity, names, quota, value, and the znode."""


@pytest.mark.soak
def test_each_choice_of_a_quota_is_written(view, cluster):
    """The dialog shows only the fields for its kind of entity; quotas are created as entered, changed and deleted."""
    view.open("quotas")
    offered, used = set(), set()
    for kind, names, quota, value, path in QUOTAS:
        view.press("Set quota")
        assert options(view, "Quota of a") == list(dict.fromkeys(row[0] for row in QUOTAS))
        view.choose("Quota of a", kind)
        labels = [each.text for each in view.all("dialog label") if each.is_displayed()]
        assert labels == ["Quota of a", *names, "Quota", "Value for each broker"]
        for label, name in names.items():
            view.fill(label, name)
        offered.update(options(view, "Quota"))
        used.add(quota)
        view.choose("Quota", quota)
        view.fill("Value for each broker", value)
        assert path in paths(confirm_writes(view, cluster, "Set"))
    assert offered == used
    rows = call_api(cluster, "/v1/quotas")["quotas"]
    names = ("user", "client_id", "ip")
    assert sorted((*(row[name] or "" for name in names), *row["quotas"].items()) for row in rows) == [
        ("", "", "10.0.0.1", ("connection_creation_rate", 50)),
        ("", "", "<default>", ("connection_creation_rate", 60)),
        ("", "<default>", "", ("controller_mutation_rate", 2.5)),
        ("", "app", "", ("request_percentage", 12.5)),
        ("<default>", "", "", ("consumer_byte_rate", 2000)),
        ("alice", "", "", ("producer_byte_rate", 1000)),
        ("alice", "app", "", ("consumer_byte_rate", 7)),
    ]
    view.open("quotas")
    pick = """[...document.querySelectorAll('tbody tr')].find(row => row.innerText.startsWith(arguments[0]))
        .querySelectorAll('button')[arguments[1]].click()"""
    view.until_text("user alice, client ID app", "tbody")
    view.driver.execute_script(pick, "user alice, client ID app", 0)
    view.until_text("Fetched bytes: 7 bytes/s now.", "dialog")
    view.fill("Value for each broker", "8")
    confirm_writes(view, cluster, "Set")
    assert {"consumer_byte_rate": 8} in [row["quotas"] for row in call_api(cluster, "/v1/quotas")["quotas"]]
    view.driver.execute_script(pick, "user alice, client ID app", 1)
    view.until_text("The next less specific quota then applies", "dialog")
    confirm_writes(view, cluster, "Delete")
    assert {"consumer_byte_rate": 8} not in [row["quotas"] for row in call_api(cluster, "/v1/quotas")["quotas"]]


# --- produce ----------------------------------------------------------------------------------------------------------

FORMATS = {
    "text": ("tea", b"tea"),
    "json": ('{"a": [1, null]}', b'{"a":[1,null]}'),
    "base64": (base64.b64encode(b"\0\xff").decode(), b"\0\xff"),
    "hex": ("00ff7a", b"\0\xffz"),
    "msgpack": ('{"a": 1}', b"\x81\xa1a\x01"),
    "cbor": ('{"a": 1}', b"\xa1\x61a\x01"),
}
"""By format: the text of the field, and the bytes of the record."""

WITH_SCHEMA = {"avro", "protobuf", "json-schema"}


def records(cluster, name, partition):
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "x", "log_level": 0})
    consumer.assign([TopicPartition(name, partition, 0)])
    end = consumer.get_watermark_offsets(TopicPartition(name, partition))[1]
    found = consumer.consume(end, timeout=10) if end else []
    consumer.close()
    return found


@pytest.mark.soak
def test_each_choice_of_a_produced_message_is_written(view, cluster):
    """Messages are written with each format, without a key, as tombstones and with headers; a check writes none."""
    call_api(cluster, "/v1/topics", "POST", {"name": "made", "partitions": 3})
    view.open("messages/made/produce")
    view.until(lambda: view.field("Value"))
    assert set(options(view, "Value is")) - WITH_SCHEMA == FORMATS.keys()
    assert set(options(view, "Key is")) == set(options(view, "Value is"))
    assert options(view, "Partition") == ["Chosen by key", "0", "1", "2"]
    view.choose("Partition", "1")
    for number, (name, (text, _)) in enumerate(FORMATS.items()):
        view.choose("Key is", name)
        view.choose("Value is", name)
        view.fill("Key", text)
        view.fill("Value", text)
        view.press("Check only")
        view.until_text("This message would be accepted by partition 1. Nothing was written.", "main form")
        view.press("Produce", "button")
        view.until_text(f"Written to partition 1 at offset {number}.", "main form")
    view.choose("Value is", "text")
    view.fill("Value", "with headers")
    view.fill("Headers", "trace: 42\nempty:\ncolons: a:b")
    view.press("No key (null)", "label")
    view.press("Produce", "button")
    view.until_text(f"at offset {len(FORMATS)}.", "main form")
    view.fill("Headers", "")
    view.press("No value (null, a tombstone)", "label")
    view.choose("Key is", "text")
    view.fill("Key", "k")
    view.press("Produce", "button")
    view.until_text(f"at offset {len(FORMATS) + 1}.", "main form")
    found = records(cluster, "made", 1)
    expected = [content for _, content in FORMATS.values()]
    assert [(each.key(), each.value()) for each in found] == [
        *zip(expected, expected, strict=True),
        (None, b"with headers"),
        (b"k", None),
    ]
    assert found[-2].headers() == [("trace", b"42"), ("empty", b""), ("colons", b"a:b")]
    assert records(cluster, "made", 0) == records(cluster, "made", 2) == []


# --- keys -------------------------------------------------------------------------------------------------------------


def test_the_keys_are_turned_off_and_on(view):
    view.open("topics")
    for is_on in (False, True):
        view.one("#tools button:last-child").click()
        view.press("Use these keys", "label")
        view.press("Close")
        view.until(lambda: not view.all("dialog"))
        view.driver.execute_script("document.activeElement.blur()")
        view.keys("g", "b")
        if is_on:
            view.until(lambda: view.address == "brokers")
        else:
            view.keys(Keys.SHIFT)
            assert view.address == "topics"
