"""The dashboard in the window of a phone, with a server that implements the API's contract."""

import pytest

from .contract_server import ContractServer
from .contract_world import World

pytestmark = [pytest.mark.needs_program("chromium", "chromedriver"), pytest.mark.soak]

WIDTH, HEIGHT = 390, 844


@pytest.fixture(scope="module")
def small():
    with ContractServer(World(topics=8, partitions=4, down=3)) as server:
        yield server


@pytest.fixture
def view(page, small):
    page.base = small.url
    page.size(WIDTH, HEIGHT)
    yield page
    page.size(1280, 900)


def rectangle(view, node):
    """Return the edges of an element in the window."""
    found = view.driver.execute_script("return arguments[0].getBoundingClientRect().toJSON()", node)
    return found["left"], found["top"], found["right"], found["bottom"]


def is_inside(view, node):
    """Return true if the whole element is in the window."""
    left, top, right, bottom = rectangle(view, node)
    return left >= 0 and top >= 0 and right <= WIDTH and bottom <= HEIGHT


@pytest.mark.parametrize(
    ("address", "opener", "button"),
    [("topic/orders-0000", "Delete records", "Delete records"), ("group/kitchen", "Reset offsets", "Reset")],
)
def test_a_table_in_a_dialog_does_not_widen_it(view, address, opener, button):
    """A dialog with a table fits into the window with all its fields and buttons; the table scrolls in itself."""
    view.open(address)
    view.press(opener)
    view.until(lambda: view.all("dialog .preview[aria-busy=false] tbody tr"))
    hidden = "const at = document.querySelector(arguments[0]); return at.scrollWidth - at.clientWidth"
    assert view.driver.execute_script(hidden, "dialog") <= 0
    assert view.driver.execute_script(hidden, "dialog .table") > 0
    confirm = next(found for found in view.all("dialog button") if found.text == button)
    assert is_inside(view, confirm)
    for field in view.all("dialog input, dialog select"):
        if field.is_displayed():
            assert rectangle(view, field)[2] <= rectangle(view, view.one("dialog"))[2]


def test_only_the_naming_column_is_pinned(view):
    """A row's actions scroll with the table, so that most of the window is left for data; in wide windows they stay."""
    position = "return getComputedStyle(document.querySelector(arguments[0])).position"
    view.open("topics")
    view.until(lambda: view.all("tbody tr"))
    assert view.driver.execute_script(position, "tbody th") == "sticky"
    assert view.driver.execute_script(position, "tbody .cell-actions") == "static"
    left, _, right, _ = rectangle(view, view.one("tbody th"))
    assert right - left <= 128
    view.size(1280, 900)
    assert view.driver.execute_script(position, "tbody .cell-actions") == "sticky"


def test_a_cut_table_shows_that_it_scrolls(view):
    """A table has a shade at the edge, which its content covers at the end of the table."""
    view.open("topics")
    view.until(lambda: view.all("tbody tr"))
    style = "return getComputedStyle(document.querySelector('.table')).backgroundAttachment"
    assert view.driver.execute_script(style).startswith("local, scroll")


def test_the_lag_of_a_partition_is_visible_without_scrolling(view):
    """In the table of a group's partitions, the number precedes its bar and is inside the window."""
    view.open("group/kitchen")
    view.until_text("60", ".bar-line .value")
    for value in view.all(".bar-line .value"):
        assert rectangle(view, value)[2] <= rectangle(view, view.one(".table"))[2]
    value, bar = view.one(".bar-line .value"), view.one(".bar-line .bar")
    assert rectangle(view, value)[2] <= rectangle(view, bar)[0]


def test_the_chosen_columns_of_messages_are_shown(view):
    """On a phone, only key and value are ticked at first; each column that is ticked is in the table."""
    view.open("messages/orders-0000")
    view.until(lambda: view.all("td.value"))
    ticked = "return [...document.querySelectorAll('.menu-panel :checked')].map(box => box.parentElement.innerText)"
    headers = "return [...document.querySelectorAll('.messages thead th')].map(cell => cell.innerText).slice(1)"
    view.press("Columns")
    assert view.driver.execute_script(ticked) == ["Key", "Value"]
    assert view.driver.execute_script(headers) == ["Offset", "Key", "Value"]
    left, _, right, _ = rectangle(view, view.one("td.value"))
    assert left >= 0
    assert right <= WIDTH
    view.one(".menu-panel [value=time]").click()
    assert view.driver.execute_script(headers) == ["Offset", "Time", "Key", "Value"]
    assert view.one("td.column-time").is_displayed()


@pytest.mark.parametrize(
    ("address", "entry"),
    [
        ("plans/new", "Plans"),
        ("plan/plan-0000000001", "Plans"),
        ("topic/orders-0000", "Topics"),
        ("broker/1", "Brokers"),
        ("group/kitchen", "Groups"),
        ("why/partitions/orders-0000/1", "Why"),
        ("timeline", "Timeline"),
    ],
)
def test_the_current_entry_of_the_navigation_is_visible(view, address, entry):
    """The navigation highlights the entry of a page or of its parent, and scrolls to it."""
    view.open("")
    view.open(address)
    current = view.one("#pages [aria-current]")
    assert current.text == entry
    assert is_inside(view, current)


def test_a_result_that_the_page_shows_is_only_announced(view):
    """After a plan's preview, no notification covers the page; screen readers are notified."""
    view.open("plans/new")
    view.until_text("Rebalance")
    view.press("Preview")
    view.until_text("The plan has not started.", "#notification")
    assert view.one("#notification p").size == {"width": 1, "height": 1}


def test_a_notification_is_below_the_header_and_ends_with_its_page(view):
    """A notification does not cover the end of the page; one of an action that opens a page ends with that page."""
    view.open("plans/new")
    view.until_text("Rebalance")
    view.press("Preview")
    view.press("Start the plan")
    view.until(lambda: view.address == "plan/plan-0000000001")
    view.until_text("plan-0000000001 was created.", "#notification")
    _, top, _, bottom = rectangle(view, view.one("#notification p"))
    assert rectangle(view, view.one(".top"))[3] <= top
    assert bottom <= HEIGHT / 4
    view.press("Topics")
    view.until(lambda: view.heading == "Topics")
    assert not view.all("#notification p")


def test_the_writes_of_a_preview_are_closed(view):
    """On a phone, the writes to ZooKeeper do not push the button out of the window; wide windows show them."""
    view.open("topic/orders-0000")
    view.until_text("In sync")
    for width, height, is_open in ((WIDTH, HEIGHT, False), (1280, 900, True)):
        view.size(width, height)
        view.press("Add partitions")
        view.until(lambda: view.all("dialog .preview[aria-busy=false] details"))
        assert len(view.all("dialog details[open]")) == is_open
        view.press("Cancel")
        view.until(lambda: not view.all("dialog"))


def test_the_replication_factor_can_be_changed_from_a_topic(view):
    """The form of a plan that is opened from a topic keeps the topic when another kind is selected."""
    view.open("topic/orders-0000")
    view.press("Move or add replicas")
    view.until(lambda: view.address.startswith("plans/new"))
    view.until(lambda: view.field("Partitions and their replicas").get_attribute("value").startswith("orders-0000 0 "))
    view.one("input[value=replication_factor]").click()
    assert view.field("Topics").get_attribute("value") == "orders-0000"
