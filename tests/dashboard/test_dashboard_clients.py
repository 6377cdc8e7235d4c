"""Clients that push metrics: the list, their metrics, and subscriptions."""

import pytest

from .accessibility import RULES, violations
from .contract_server import ContractServer
from .contract_world import CLIENT, HOSTILE, World

pytestmark = pytest.mark.needs_program("chromium", "chromedriver")


@pytest.fixture(scope="module")
def server():
    with ContractServer(World(topics=1, partitions=1)) as started:
        yield started


@pytest.fixture
def view(page, server):
    page.base = server.url
    yield page
    assert page.console_errors() == []


def test_metrics_of_a_client(view):
    """The list links to a client's metrics, which can be searched; names sent by clients are shown as text."""
    view.open("clients")
    view.until_text("20 clients")
    view.until_text(HOSTILE)
    view.press("shop-0")
    view.until(lambda: view.address.endswith(f"client/{CLIENT}"))
    view.until_text("4 values")
    view.until_text("The client has more values than are shown.")
    view.until_text("0.842")
    view.fill("Find a metric", "send.total")
    view.until(lambda: len(view.all("tbody tr")) == 1)
    view.until_text("12,345")
    assert view.all("main script, main img") == []
    assert violations(view, RULES) == []


def test_connection_leads_to_its_client(view):
    """A connection links to its client, unless the client sends no metrics."""
    view.open("broker/1/connections")
    view.until_text("250 connections")
    assert [link.text for link in view.all("tbody a[href]")] == ["shop-101"]
    view.press("shop-101")
    view.until_text("4 values")


def test_subscription_is_created_and_deleted(view):
    """The previews of a creation and a deletion show the znodes; invalid values are refused before the preview."""
    view.open("clients")
    view.press("New subscription")
    view.fill("Name", "of orders")
    view.fill("Interval in seconds", "0.01")
    view.press("Preview")
    view.until_text("Enter 0.1 to 3600 seconds.", "dialog")
    view.fill("Interval in seconds", "2.5")
    view.fill("Clients", "client_id=orders-.*")
    view.press("Preview")
    view.until_text("Create subscription “of orders”?", "dialog")
    view.until_text("/configs/client-metrics/of orders", "dialog")
    for text in ('"interval.ms": 2500', '"match": "client_id=orders-.*"', '"metrics": "*"'):
        view.until_text(text, "dialog")
    view.press("Create")
    view.until(lambda: view.address.endswith("subscription/of%20orders"))
    view.until_text("interval.ms")
    view.press("Delete")
    view.until_text("Delete subscription “of orders”?", "dialog")
    view.all("dialog .danger")[0].click()
    view.until(lambda: view.address.endswith("clients"))
