"""The dashboard with a server that implements the API's contract, for states that are rare in a real cluster."""

from datetime import UTC, datetime

import pytest
from selenium.webdriver.common.keys import Keys

from .accessibility import CONTRAST, violations
from .contract_server import ContractServer
from .contract_world import CLIENT, HOSTILE, World

pytestmark = pytest.mark.needs_program("chromium", "chromedriver")

PAGES = {
    "": "Overview",
    "brokers": "Brokers",
    "broker/1": "Broker 1",
    "broker/1/connections": "Broker 1",
    "broker/1/settings": "Broker 1",
    "topics": "Topics",
    "topics/new": "Create a topic",
    "topic/orders-0000": "orders-0000",
    "topic/orders-0000/groups": "orders-0000",
    "topic/orders-0000/settings": "orders-0000",
    "messages": "Messages",
    "messages/orders-0000": "orders-0000",
    "messages/orders-0000/tail": "orders-0000",
    "messages/orders-0000/produce": "orders-0000",
    "groups": "Groups",
    "group/kitchen": "kitchen",
    "plans": "Plans",
    "plans/new?kind=drain": "Create a plan",
    "plan/plan-0000000001": "plan-0000000001",
    "why": "Why?",
    "why/partitions/orders-0000/1": "Diagnosis of orders-0000-1",
    "timeline": "Timeline",
    "users": "Users",
    "acls": "Access",
    "quotas": "Quotas",
    "clients": "Clients",
    f"client/{CLIENT}": f"Client {CLIENT}",
    "subscription/all": "Subscription all",
}


WIDE = """const isWide = node => node.getBoundingClientRect().right > innerWidth + 1;
    return document.documentElement.scrollWidth <= innerWidth ? []
        : [...document.querySelectorAll('main *')].filter(isWide).slice(0, 5)
            .map(node => node.outerHTML.slice(0, 100));"""


@pytest.fixture(scope="module")
def small():
    with ContractServer(World(topics=8, partitions=4, down=3)) as server:
        yield server


@pytest.fixture
def view(page, small):
    page.base = small.url
    return page


def settle(page):
    """Wait until a page's initial requests are complete."""
    page.until(lambda: page.driver.execute_script("return document.querySelectorAll('[aria-busy=true]').length === 0"))
    page.until_text("cluster", "#cluster-info")


def test_pages_are_accessible(view):
    """All pages have correct labels, roles and headings, contrast in both themes, and no errors in the console."""
    found = {}
    for address, heading in PAGES.items():
        view.open(address)
        settle(view)
        assert view.heading == heading
        light = violations(view)
        view.scheme("dark")
        found[address] = (light, violations(view, CONTRAST), view.console_errors())
        view.scheme("light")
    assert found == {address: ([], [], []) for address in PAGES}


DIALOGS = (
    ("topic/orders-0000", "Add partitions"),
    ("topic/orders-0000", "Elect preferred leaders"),
    ("topic/orders-0000", "Delete records"),
    ("topic/orders-0000", "Delete topic"),
    ("topic/orders-0000/settings", "Edit retention.ms"),
    ("group/kitchen", "Reset offsets"),
    ("group/kitchen", "Delete"),
    ("plan/plan-0000000001", "Change throttle"),
    ("plan/plan-0000000001", "Cancel plan"),
    ("broker/1", "Cordon"),
    ("acls", "Create ACL"),
    ("users", "Create user"),
    ("users", "Change password"),
    ("quotas", "Set quota"),
    ("quotas", "Change"),
)
"""The address of a page, and the button on it that opens a dialog."""


def test_dialogs_are_accessible(view):
    """Each dialog has a name, gets the focus, returns it after Escape, and fits on a phone."""
    found = {}
    for address, name in DIALOGS:
        view.open(address)
        opener = view.named(name, "button")
        view.driver.execute_script("arguments[0].focus()", opener)
        view.keys(Keys.ENTER)
        view.until(lambda: view.all("dialog"), name)
        view.until(lambda: not view.driver.execute_script("return document.querySelector('dialog [aria-busy=true]')"))
        view.until(lambda: "Requesting" not in view.text("dialog"))
        found[address, name] = violations(view, within="dialog")
        assert view.driver.execute_script("return document.querySelector('dialog').contains(document.activeElement)")
        view.size(390, 844)
        width = "return document.querySelector('dialog').scrollWidth - document.querySelector('dialog').clientWidth"
        assert view.driver.execute_script(width) <= 0, name
        view.size(1280, 900)
        view.keys(Keys.ESCAPE)
        view.until(lambda: not view.all("dialog"))
        focused = view.driver.switch_to.active_element
        assert focused.text == name or focused.get_attribute("aria-label") == name
    assert found == {dialog: [] for dialog in DIALOGS}


def test_records_are_deleted_with_the_keyboard(view, small):
    """The dialog's field for the topic's name has the focus; Enter confirms once the name is complete."""
    small.writes.clear()
    view.open("topic/orders-0000")
    view.until_text("In sync")
    view.driver.execute_script("arguments[0].focus()", view.named("Delete records", "button"))
    view.keys(Keys.ENTER)
    view.until(lambda: view.all("dialog .preview[aria-busy=false]"))
    view.keys("orders-000", Keys.ENTER)
    assert small.writes == []
    view.keys("0", Keys.ENTER)
    view.until(lambda: not view.all("dialog"))
    assert small.writes == [("DELETE", "/v1/topics/orders-0000/messages", None)]


def test_form_has_the_focus(view, small):
    """On a page with a form, the first field has the focus; on other pages, the heading does."""
    view.open("topics")
    view.until(lambda: view.all("tbody tr"))
    view.press("Create topic")
    view.until(lambda: view.address == "topics/new")
    small.writes.clear()
    view.keys("made", Keys.TAB, "6")
    view.until(lambda: view.all(".preview[aria-busy=false] pre"))
    view.keys(Keys.ENTER)
    view.until(lambda: small.writes)
    assert small.writes == [("POST", "/v1/topics", {"name": "made", "partitions": 6})]


def test_markup_in_names_and_messages_is_text(view):
    """Markup in keys, values, headers, groups, comments and entries is shown as text, and never interpreted."""
    for address in (
        "messages/orders-0000",
        "groups",
        "timeline",
        "plan/plan-0000000001",
        "why/partitions/orders-0000/1",
    ):
        view.open(address)
        view.until_text(HOSTILE)
        assert view.all("main script, main img") == []
    view.open("messages/orders-0000")
    view.press("Details of message 0 of partition 0")
    view.until_text(HOSTILE, ".details-row")
    assert view.all(".details-row script, .details-row img") == []
    view.open("messages/orders-0000/tail")
    view.until_text(HOSTILE)
    assert "owned" not in view.driver.title


def test_keyboard_navigation(view):
    """The keyboard alone is enough to skip to the content, navigate, list the keys, and open an explanation."""
    view.open("brokers")
    view.until_text("leader", ".map-legend")
    assert view.tab() == "a Skip to the content"
    view.keys(Keys.ENTER)
    assert view.driver.switch_to.active_element.get_attribute("id") == "main"
    view.keys("?")
    view.until_text("Overview", "dialog")
    view.keys(Keys.ESCAPE)
    view.until(lambda: not view.all("dialog"))
    reached = [view.tab() for _ in range(20)]
    (cell,) = [name for name in reached if name.startswith("span")]
    assert "on broker 1" in cell
    assert len([name for name in reached if "Cordon broker" in name]) == 2
    view.driver.execute_script("document.querySelector('.map .cell[tabindex=\"0\"]').focus()")
    view.keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert "on broker 2" in view.driver.switch_to.active_element.get_attribute("aria-label")
    view.keys(Keys.ENTER)
    view.until(lambda: view.address.startswith("why/partitions/"))
    view.keys("g", "t")
    view.until(lambda: view.address == "topics" and view.heading == "Topics")
    view.keys("/")
    assert view.driver.switch_to.active_element.get_attribute("type") == "search"
    view.driver.back()
    view.until(lambda: view.address.startswith("why/partitions/"))


def test_the_default_theme_is_that_of_the_system(view):
    """The theme follows the system until the button selects the other one, which is remembered."""
    background = "return getComputedStyle(document.documentElement).backgroundColor"
    view.open("plans")
    light = view.driver.execute_script(background)
    view.scheme("dark")
    dark = view.driver.execute_script(background)
    assert light != dark
    view.press("Light theme")
    assert view.driver.execute_script(background) == light
    view.open("groups")
    assert view.driver.execute_script(background) == light


def test_an_error_shows_what_to_do(view, small):
    """If the API refuses a form, the page shows its error and advice."""
    small.writes.clear()
    view.open("topics/new")
    view.fill("Name", "refused")
    view.until_text("the topic refused exists", "main form [role=alert]")
    assert "Choose another name." in view.text("main form [role=alert]")
    assert not view.named("Create").is_enabled()
    assert small.writes == []
    assert view.console_errors(["409"]) == []


def test_an_invalid_filter_clears_the_results(view):
    """With an invalid filter, no rows or counts of the previous search are shown; a valid filter shows rows again."""
    view.open("messages/orders-0000")
    view.until_text("3 messages shown")
    view.fill("Filter", "value.totl >")
    view.press("Show")
    view.until_text("mismatched input", ".message-search [role=alert]")
    view.until(lambda: "shown" not in view.text())
    assert view.all(".messages tbody tr") == []
    view.fill("Filter", "value.total > 1")
    view.press("Show")
    view.until_text("3 messages shown")
    assert len(view.all(".messages tbody tr")) == 3
    assert view.console_errors(["400"]) == []


def test_downloads_name_their_scope(view):
    """The links say that they save all matching messages, up to a limit, and not only those that are shown."""
    view.open("messages/orders-0000")
    for name in ("NDJSON", "CSV"):
        described = view.named(name).get_attribute("aria-describedby")
        assert view.text(f"#{described}") == "Download all matching messages, at most 100,000"


def test_writes_are_previewed(view, small):
    """A plan's moves, warnings and znodes are previewed, and the confirmed plan is the previewed one."""
    small.writes.clear()
    view.open("plans/new")
    view.until_text("Rebalance")
    view.one("input[value=drain]").click()
    view.until(lambda: view.all("input[type=checkbox][value='2']"))
    view.one("input[type=checkbox][value='2']").click()
    view.fill("Throttle (MB/s per broker)", "20")
    view.fill("Comment", "for the new disks")
    view.press("Preview")
    view.until_text("Preview")
    view.until_text("create /plans")
    assert small.writes == []
    view.press("Start the plan")
    view.until(lambda: view.address == "plan/plan-0000000001")
    body = {"kind": "drain", "brokers": [2], "throttle_bytes_per_second": 20_000_000, "comment": "for the new disks"}
    assert small.writes == [("POST", "/v1/plans", body)]
    view.until_text("plan-0000000001 was created.", "#notification")


def test_a_deletion_must_be_confirmed_by_typing(view, small):
    """The button for a deletion is disabled until the topic's name has been typed."""
    small.writes.clear()
    view.open("topic/orders-0000")
    view.press("Delete topic")
    view.until_text("Delete topic “orders-0000”?", "dialog")
    view.until_text("to ZooKeeper", "dialog")
    button = next(found for found in view.all("dialog button") if found.text == "Delete")
    assert not button.is_enabled()
    view.fill("Type “orders-0000” to continue", "orders-0000")
    view.confirm("Delete")
    assert small.writes == [("DELETE", "/v1/topics/orders-0000", None)]


def test_a_kill_must_be_confirmed(page):
    """A broker is killed only after a confirmation, since the button is where "Start" was."""
    world = World(topics=2, partitions=1)
    world.is_standalone = True
    with ContractServer(world) as server:
        page.base = server.url
        page.open("")
        page.press("Kill broker 2")
        page.until_text("Kill broker 2?", "dialog")
        page.press("Cancel")
        page.until(lambda: not page.all("dialog"))
        assert server.writes == []
        page.press("Kill broker 2")
        page.confirm("Kill")
        page.until(lambda: server.writes)
        assert server.writes == [("POST", "/v1/standalone/brokers/2/kill", None)]
        page.console_errors()


def test_a_refresh_keeps_focus_selection_and_scrolling(view):
    """A refresh updates the existing row elements, so that focus and selection are kept."""
    view.open("topics")
    view.until(lambda: len(view.all("tbody tr")) == 8)
    view.driver.execute_script(
        """window.rows = [...document.querySelectorAll('tbody tr')];
        rows[2].querySelector('a').focus();
        getSelection().selectAllChildren(rows[3]);
        window.fetches = 0;
        const original = window.fetch;
        window.fetch = (path, ...rest) => {
            window.fetches += path.startsWith('/v1/topics');
            return original(path, ...rest);
        };"""
    )
    view.until(lambda: view.driver.execute_script("return window.fetches >= 2"))
    kept = "return rows.every((row, i) => row === document.querySelectorAll('tbody tr')[i])"
    assert view.driver.execute_script(kept)
    assert view.driver.execute_script("return document.activeElement === rows[2].querySelector('a')")
    assert view.driver.execute_script("return rows[3].contains(getSelection().anchorNode)")


def test_pages_fit_a_phone(view):
    """No page is wider than a phone's screen; wide tables scroll separately, and message values are visible."""
    view.size(390, 844)
    wide = {}
    try:
        for address in PAGES:
            view.open(address)
            settle(view)
            wide[address] = view.driver.execute_script(WIDE)
        assert wide == {address: [] for address in PAGES}
        view.open("messages/orders-0000")
        assert view.one("td.value").is_displayed()
    finally:
        view.size(1280, 900)


def test_login(page):
    """If the API requires a login, a dialog appears; the session cannot be read by scripts, and streams use it."""
    with ContractServer(World(topics=2, partitions=1), token="sesame") as server:
        page.driver.get(f"{server.url}/#/timeline")
        page.until_text("requires a login", "dialog")
        page.fill("User", "alice")
        page.fill("Password", "wrong")
        page.press("Log in")
        page.until_text("the user name or password is wrong", "dialog")
        assert violations(page) == []
        page.fill("Password", "sesame")
        page.press("Log in")
        page.until_text("new entries appear automatically")
        page.until_text("alice", "#tools")
        for place in ("Object.values(sessionStorage)", "Object.values(localStorage)", "document.cookie"):
            assert "sesame" not in str(page.driver.execute_script(f"return {place}"))
        page.driver.delete_all_cookies()
        page.driver.execute_script("location.reload()")
        page.press("Continue without")
        page.until_text("a token is needed")
        page.press("Log in")
        page.until_text("requires a login", "dialog")
        page.press("Use the token")
        page.fill("Token", "sesame")
        page.press("Log in")
        page.until_text("new entries appear automatically")
        page.driver.delete_all_cookies()
        assert page.console_errors(["401"]) == []


def test_ten_thousand_partitions_do_not_block_the_page(page):
    """With ten thousand partitions, lists have pages, the map is replaced by counts, and no task blocks for long."""
    watch = """window.long = 0;
        new PerformanceObserver(list => list.getEntries().forEach(e => window.long = Math.max(window.long, e.duration)))
            .observe({type: 'longtask', buffered: true});"""
    with ContractServer(World(topics=1000, partitions=10)) as server:
        page.base = server.url
        page.open("topics")
        page.driver.execute_script(watch)
        page.until(lambda: len(page.all("tbody tr")) == 100)
        page.press("Next page")
        page.until(lambda: "page=2" in page.address and len(page.all("tbody tr")) == 100)
        page.driver.back()
        page.until(lambda: page.address == "topics")
        page.fill("Find a topic", "0999")
        page.until(lambda: len(page.all("tbody tr")) == 1)
        page.driver.execute_script("location.hash = '#/brokers'")
        page.until_text("too many partitions for one map")
        page.fill("Topic", "orders-0000")
        page.until(lambda: len(page.all(".map .cell")) == 30)
        page.driver.execute_script("location.hash = '#/'")
        page.until_text("10,000")
        assert page.driver.execute_script("return window.long") < 500
        assert page.console_errors() == []


def test_health_does_not_wait_for_metrics(page):
    """If metrics are unavailable, the overview still shows and updates the cluster's health."""
    world = World(topics=2, partitions=1)
    world.has_figures = False
    with ContractServer(world) as server:
        page.base = server.url
        page.open("")
        page.until_text("All is well: 3 brokers")
        world.live = [1, 2]
        page.until_text("2 partitions are under-replicated")
        page.console_errors()


def test_cordoned_brokers_are_named(page):
    """The overview, the list of brokers and a finished drain show that a broker, here the controller, is cordoned."""
    world = World(topics=2, partitions=1)
    with ContractServer(world) as server:
        page.base = server.url
        page.open("")
        page.until_text("All is well: 3 brokers")
        world.cordoned = [1]
        note = "Broker 1 is cordoned: it gets no new replicas."
        page.until_text(note)
        page.open("brokers")
        page.until_text("Controller, cordoned")
        world.plan_changes = {"kind": "drain", "request": {"brokers": [1, 2]}}
        page.open("plan/plan-0000000001")
        page.until_text("Running")
        assert note not in page.text()
        world.plan_changes |= {"state": "completed"}
        page.until_text(note)
        world.cordoned = []
        page.until(lambda: note not in page.text())


def test_an_unreachable_broker_is_reported(page):
    """If the broker does not respond, the page keeps its content and shows a banner."""
    with ContractServer(World(topics=2, partitions=1)) as server:
        page.base = server.url
        page.open("topics")
        page.until(lambda: len(page.all("tbody tr")) == 2)
    page.until_text("does not respond", "#connection-banner")
    assert len(page.all("tbody tr")) == 2
    page.console_errors()


def test_times_are_in_utc(view, small):
    """Times are shown and entered in UTC, with the zone's name, whatever the browser's time zone."""
    zone = "Emulation.setTimezoneOverride"
    view.driver.execute_cdp_cmd(zone, {"timezoneId": "Asia/Kolkata"})
    try:
        view.open("broker/1")
        started = datetime.fromtimestamp(int(small.world.started_ms) / 1000, UTC)
        view.until_text(f"{started.isoformat(' ', 'milliseconds')[:-6]} UTC", ".facts")
        view.open("messages/orders-0000?from=timestamp:1790000000000")
        shown = view.field("Time").get_attribute("value")
        assert datetime.fromisoformat(f"{shown}Z").timestamp() == 1_790_000_000
        view.press("Show")
        assert "from=timestamp%3A1790000000000" in view.address
    finally:
        view.driver.execute_cdp_cmd(zone, {"timezoneId": ""})


def test_streams_show_their_state(view, small):
    """A stream is shown as interrupted until it has reconnected, and as ended if the API rejects it."""
    busy = {"title": "OVERLOADED", "detail": "64 streams are open, which is the limit"}
    missing = {"title": "UNKNOWN_TOPIC_OR_PARTITION", "detail": "topic orders-0000 does not exist"}
    try:
        view.open("messages/orders-0000/tail")
        view.until_text("Following.")
        small.stream_problem = (503, busy)
        view.until_text("Interrupted; reconnecting.")
        view.until_text(busy["detail"])
        small.stream_problem = None
        view.until_text("Following.")
        assert busy["detail"] not in view.text()
        small.stream_problem = (404, missing)
        view.until_text("Not following.")
        view.until_text(missing["detail"], "[role=alert]")
        view.open("timeline")
        view.until_text("Not live")
        view.until_text(missing["detail"], "[role=alert]")
    finally:
        small.stream_problem = None
    assert view.console_errors(["404", "503"]) == []


def test_following_can_be_stopped(view):
    """The button stops the stream while it follows; after a change of the filters or a stop, it starts the stream."""
    view.open("messages/orders-0000/tail")
    view.until_text("Following. 3 messages shown.")
    view.press("Stop")
    view.until_text("Stopped. 3 messages shown.")
    view.press("Follow")
    view.until_text("Following. 3 messages shown.")
    view.fill("Contains", "coffee")
    view.press("Follow")
    view.until(lambda: "search=coffee" in view.address)
    view.until_text("Following.")
    view.named("Stop")
    assert view.console_errors() == []


def test_faults_are_named_with_links_to_their_explanations(page):
    """The overview shows the first fault and lists the others; each links to its explanation."""
    world = World(topics=2, partitions=1)
    world.faults = ["Broker 1: the disk of log directory /a is full.", f"Broker 1: {HOSTILE}"]
    with ContractServer(world) as server:
        page.base = server.url
        page.open("")
        page.until_text(world.faults[0], ".health.bad")
        page.until_text(world.faults[1], ".faults")
        page.named(f"Why? {world.faults[1]}")
        page.press(f"Why? {world.faults[0]}")
        page.until(lambda: page.address == "why/brokers/1")
        page.until(lambda: page.heading == "Diagnosis of broker 1")
        page.open("brokers")
        page.until_text("Full disk +1", "tbody tr:first-child .chip.bad")
        page.open("broker/1")
        page.until_text(world.faults[0], ".facts")
        page.open("")
        world.faults = []
        page.until_text("All is well: 3 brokers")
        assert not page.one(".health").find_elements("css selector", "a")
        page.console_errors()
