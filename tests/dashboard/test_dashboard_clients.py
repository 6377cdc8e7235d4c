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
def at(page, server):
    page.base = server.url
    yield page
    assert page.console_errors() == []


def test_metrics_of_a_client(at):
    """The list links to a client's metrics, which can be searched; names sent by clients are shown as text."""
    at.open("clients")
    at.until_text("20 clients")
    at.until_text(HOSTILE)
    at.press("shop-0")
    at.until(lambda: at.address.endswith(f"client/{CLIENT}"))
    at.until_text("4 values")
    at.until_text("The client has more values than are shown.")
    at.until_text("0.842")
    at.fill("Find a metric", "send.total")
    at.until(lambda: len(at.all("tbody tr")) == 1)
    at.until_text("12,345")
    assert at.all("main script, main img") == []
    assert violations(at, RULES) == []


def test_connection_leads_to_its_client(at):
    """A connection links to its client, unless the client sends no metrics."""
    at.open("broker/1/connections")
    at.until_text("250 connections")
    assert [link.text for link in at.all("tbody a[href]")] == ["shop-101"]
    at.press("shop-101")
    at.until_text("4 values")


def test_subscription_is_created_and_deleted(at):
    """The previews of a creation and a deletion show the znodes; invalid values are refused before the preview."""
    at.open("clients")
    at.press("New subscription")
    at.fill("Name", "of orders")
    at.fill("Interval in seconds", "0.01")
    at.press("Preview")
    at.until_text("Enter 0.1 to 3600 seconds.", "dialog")
    at.fill("Interval in seconds", "2.5")
    at.fill("Clients", "client_id=orders-.*")
    at.press("Preview")
    at.until_text("Create the subscription of orders?", "dialog")
    at.until_text("/configs/client-metrics/of orders", "dialog")
    for text in ('"interval.ms": 2500', '"match": "client_id=orders-.*"', '"metrics": "*"'):
        at.until_text(text, "dialog")
    at.press("Create")
    at.until(lambda: at.address.endswith("subscription/of%20orders"))
    at.until_text("interval.ms")
    at.press("Delete")
    at.until_text("Delete the subscription of orders?", "dialog")
    at.all("dialog .danger")[0].click()
    at.until(lambda: at.address.endswith("clients"))
