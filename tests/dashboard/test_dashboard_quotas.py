"""Quotas in the dashboard of a real broker, with a client that exceeds one."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.support.standalone import StandaloneProcess

pytestmark = pytest.mark.needs_program("chromium", "chromedriver")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with StandaloneProcess(tmp_path_factory.mktemp("quotas") / "process") as process:
        yield process


def set_quota(page, kind, name, quota, value):
    page.press("Set quota")
    page.choose("Quota of a", kind)
    page.fill({"IP address": "IP address or host"}.get(kind, kind), name)
    page.choose("Quota", quota)
    page.fill("Value for each broker", value)


def test_quota_of_a_client(page, broker):
    """An operator sets a quota, finds a client that exceeds it, and deletes the quota."""
    page.base = broker.admin_url
    page.open("quotas")
    page.until_text("No quotas are set.")
    page.until_text("No clients were throttled in the last hour.")
    set_quota(page, "Client ID", "app", "Produced bytes (bytes/s)", "1000")
    page.until_text("/config/clients/app", "dialog")
    page.confirm("Set")
    page.until_text("client ID app", "tbody")
    page.until_text("1,000 bytes/s", "tbody")

    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "client.id": "app", "linger.ms": 0})
    producer.produce("orders", bytes(20_000))
    assert producer.flush(20) == 0
    page.until_text("User:ANONYMOUS, app")
    page.until_text("Produced bytes")
    page.press("Explain")
    page.until_text("producer_byte_rate (1,000 bytes per second on each broker, the quota of client id app).")

    page.press("Change")
    page.fill("Value for each broker", "5000.5")
    page.until_text("must be a whole number", "dialog")
    page.press("Cancel")
    set_quota(page, "IP address", "", "New connections (connections/s)", "50")
    page.until_text("/config/ips/", "dialog")
    page.confirm("Set")
    page.until_text("every address")
    page.size(390, 844)
    page.until_text("every address")
    assert page.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    page.size(1280, 900)
    for _ in range(2):
        page.press("Delete")
        page.until_text("to ZooKeeper", "dialog")
        page.confirm("Delete")
    page.until_text("No quotas are set.")
    assert page.console_errors(["400"]) == []
