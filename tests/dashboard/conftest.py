"""Fixtures: one browser per test file, because its start takes a second."""

import pytest

from .browser import browser


@pytest.fixture(scope="module")
def chromium():
    with browser("about:blank") as started:
        yield started


@pytest.fixture
def page(chromium):
    """The browser without state from earlier tests."""
    chromium.driver.get("about:blank")
    chromium.scheme("light")
    chromium.console_errors()
    yield chromium
    if chromium.driver.current_url.startswith("http"):
        chromium.driver.execute_script("localStorage.clear(); sessionStorage.clear()")
