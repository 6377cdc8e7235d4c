"""Errors and layout that a first-time user meets."""

import pytest
from selenium.webdriver import ActionChains

from .contract_server import ContractServer
from .contract_world import World

pytestmark = pytest.mark.needs_program("chromium", "chromedriver")

WHY = "/v1/why/partitions/refusing/0"


class FirstCluster(World):
    """A cluster with a missing partition, a group that has stopped, and a topic that refuses writes.

    :ivar reads: paths of the GET requests.
    """

    def __init__(self):
        super().__init__(topics=3, partitions=2)
        self.reads = []

    def respond(self, method, path, query, body):
        if method == "GET":
            self.reads.append("/".join(path))
        if path[:3] == ["why", "partitions", "missing"]:
            return 404, {"title": "UNKNOWN_TOPIC_OR_PARTITION", "status": 404, "detail": "topic missing does not exist"}
        if path == ["topics", "refusing", "messages"] and method == "POST":
            return 503, {"title": "NOT_ENOUGH_REPLICAS", "status": 503, "detail": "1 replica is in sync", "why": WHY}
        if path == ["groups", "kitchen", "offsets"]:
            row = {"topic": "orders", "partition": 0, "before": 150, "after": 198}
            return 200, {"group": "kitchen", "offsets": [row], "znodes": [], "dry_run": True}
        status, document = super().respond(method, path, query, body)
        if path == ["topics", "refusing"]:
            return 200, {"name": "refusing", "partitions": 1}
        if path == ["why", "groups", "kitchen"]:
            request = {"method": "POST", "path": "/v1/groups/kitchen/offsets", "body": {"to": {"kind": "latest"}}}
            document = {**document, "you_can": [{"text": "Skip the unread records.", "request": request}]}
        if path == ["groups", "kitchen", "lag"]:
            document = {**document, "status": "STOPPED", "no_commit_since_ms": int(self.started_ms) - 480_000}
        return status, document


@pytest.fixture(scope="module")
def world():
    return FirstCluster()


@pytest.fixture(scope="module")
def server(world):
    with ContractServer(world) as started:
        yield started


@pytest.fixture
def view(page, server):
    page.base = server.url
    yield page
    assert page.console_errors(["404", "503"]) == []


def test_a_missing_partition_is_requested_once(view, world):
    """The diagnosis of a partition that does not exist is not requested again."""
    view.open("why/partitions/missing/0")
    view.until_text("topic missing does not exist", "[role=alert]")
    polled = world.reads.count("cluster")
    view.until(lambda: world.reads.count("cluster") > polled + 2)
    assert world.reads.count("why/partitions/missing/0") == 1


@pytest.mark.parametrize("address", ["users", "groups"])
def test_a_row_under_the_pointer_has_one_background(view, address):
    view.open(address)
    row = view.one("tbody tr")
    ActionChains(view.driver).move_to_element(row).perform()
    script = """return [arguments[0], ...arguments[0].querySelectorAll('th, .cell-actions')]
        .map(node => getComputedStyle(node).backgroundColor)"""
    colors = view.until(lambda: view.one("tbody tr:hover") and view.driver.execute_script(script, view.one("tbody tr")))
    assert len(colors) >= 2
    assert len(set(colors)) == 1


def test_invalid_fields_of_a_new_topic(view):
    """The form of a new topic names the fields that prevent its creation."""
    view.open("topics/new")
    view.fill("Name", "bad name!")
    view.fill("Partitions", "0")
    view.until_text("Use only letters, digits, dots, underscores and hyphens.", ".wrong")
    view.until_text("Enter at least 1.", ".wrong")
    assert not view.named("Create", "button").is_enabled()
    view.fill("Name", "good-name")
    view.fill("Partitions", "1")
    view.until(lambda: view.named("Create", "button").is_enabled())
    assert [node.text for node in view.all(".wrong") if node.is_displayed()] == []


def test_titles_and_texts_of_plan_kinds_stay_together(view):
    view.size(1400, 900)
    view.open("plans/new")
    script = """return [...document.querySelectorAll('.plan-kinds label')].map(label =>
        label.querySelector('.hint').getBoundingClientRect().top
        - label.querySelector('strong').getBoundingClientRect().bottom)"""
    distances = view.until(lambda: view.driver.execute_script(script))
    assert max(distances) < 5
    view.size(1280, 900)


def test_a_user_is_created_only_from_a_complete_form(view):
    view.open("users")
    view.press("Create user")
    button = view.named("Create", "dialog button")
    assert not button.is_enabled()
    for label in ("User", "New password", "Repeat the password"):
        assert not button.is_enabled()
        view.fill(label, "secret")
    view.until(button.is_enabled)
    view.press("Cancel")


def test_a_refused_message_leads_to_the_diagnosis(view):
    view.open("messages/refusing/produce")
    view.press("Produce", "button")
    view.until_text("1 replica is in sync", "[role=alert]")
    view.press("Show the diagnosis")
    view.until(lambda: view.address == "why/partitions/refusing/0")


def test_a_reset_in_a_diagnosis_shows_the_offsets(view):
    """The dialog that skips unread records shows how many, like the dialog that resets offsets."""
    view.open("why/groups/kitchen")
    view.press("Execute: Skip the unread records.")
    view.until_text("+48", "dialog")
    view.press("Cancel")


def test_time_without_commits(view):
    """The page of a group shows since when nothing was committed."""
    view.open("group/kitchen")
    view.until_text("(8 min", ".numbers")
