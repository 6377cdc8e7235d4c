"""One browser for a file of tests: it takes a second to start."""

import pytest

from .browser import browser


@pytest.fixture(scope="module")
def chromium():
    with browser("about:blank") as started:
        yield started


@pytest.fixture
def page(chromium):
    """The browser, as new: nothing is kept of the test before."""
    chromium.driver.get("about:blank")
    chromium.scheme("light")
    chromium.complaints()
    yield chromium
    if chromium.driver.current_url.startswith("http"):
        chromium.driver.execute_script("localStorage.clear(); sessionStorage.clear()")
