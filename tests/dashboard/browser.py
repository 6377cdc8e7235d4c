"""A headless Chromium, and user actions on a page."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException, TimeoutException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

TIMEOUT_S = 20

MISSING = "needs Debian's chromium and chromium-driver in the PATH (apt install chromium chromium-driver)"

Found = WebElement


class Browser:
    """A browser in which elements are found by what users perceive: role, text and label."""

    def __init__(self, driver: webdriver.Chrome, base: str) -> None:
        self.driver = driver
        self.base = base

    # --- location ----------------------------------------------------------------------------------------------------

    def open(self, address: str) -> None:
        """Open a page by the part of its address after ``#/``, and wait for its heading."""
        if self.driver.current_url.startswith(f"{self.base}/#/") and self.address != address:
            before = self.one("main h1")
            self.driver.execute_script("location.hash = arguments[0]", f"#/{address}")
            self.until(lambda: self.one("main h1") != before)
        else:
            self.driver.get("about:blank")
            self.driver.get(f"{self.base}/#/{address}")
        self.until(lambda: self.one("main h1").text)

    @property
    def address(self) -> str:
        return str(self.driver.current_url).partition("#/")[2]

    @property
    def heading(self) -> str:
        return self.one("main h1").text

    # --- elements ----------------------------------------------------------------------------------------------------

    def all(self, css: str) -> list[Found]:
        return list(self.driver.find_elements(By.CSS_SELECTOR, css))

    def one(self, css: str) -> Found:
        return self.until(lambda: next((found for found in self.all(css) if found.is_displayed()), None))

    def text(self, css: str = "main") -> str:
        return self.one(css).text

    def named(self, name: str, tags: str = "button, a, summary") -> Found:
        """Return the first visible button or link with this text or label."""
        script = """
            return [...document.querySelectorAll(arguments[0])].find(node => node.checkVisibility()
                && [node.innerText.trim(), node.getAttribute('aria-label')].includes(arguments[1])) || null"""
        return self.until(lambda: self.driver.execute_script(script, tags, name), f"to find {name!r}")

    def field(self, label: str) -> Found:
        """Return the visible field with this label."""
        script = """
            return [...document.querySelectorAll('label')].reverse().filter(label => label.offsetParent
                && label.textContent.trim() === arguments[0]).map(label => label.control)[0] || null"""
        return self.until(lambda: self.driver.execute_script(script, label), label)

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Wait until the condition is true, and return its value."""

        def condition_value(_: object) -> Any:
            try:
                return condition()
            except (StaleElementReferenceException, NoSuchElementException):
                return None

        try:
            return WebDriverWait(self.driver, TIMEOUT_S, poll_frequency=0.05).until(condition_value)
        except TimeoutException:
            shown = self.driver.execute_script("return document.body.innerText.replaceAll('\\n', ' | ')")
            raise AssertionError(f"no {what} at {self.address}: {shown}; {self.console_errors()}") from None

    def until_text(self, text: str, css: str = "main") -> None:
        """Wait until an element contains the text."""
        script = """
            return [...document.querySelectorAll(arguments[0])].some(node => node.innerText.includes(arguments[1]))"""
        self.until(lambda: self.driver.execute_script(script, css, text), f"{text!r} in {css}")

    # --- actions -----------------------------------------------------------------------------------------------------

    def press(self, name: str, tags: str = "button, a, summary") -> None:
        """Scroll to a button or link, away from the fixed header, and click it."""
        found = self.named(name, tags)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()

    def fill(self, label: str, text: str) -> None:
        field = self.field(label)
        field.clear()
        field.send_keys(text or f"0{Keys.BACK_SPACE}")  # clear() would cause no input event

    def choose(self, label: str, text: str) -> None:
        field = self.field(label)
        next(option for option in field.find_elements(By.TAG_NAME, "option") if option.text == text).click()

    def confirm(self, name: str) -> None:
        """Press a dialog's button when it is enabled, and wait until the dialog is closed."""
        self.until(
            lambda: next((b for b in self.all("dialog button") if b.text == name and b.is_enabled()), None), name
        ).click()
        self.until(lambda: not self.all("dialog"), f"the dialog to close after {name}")

    def keys(self, *keys: str) -> None:
        """Send keys to the focused element."""
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def tab(self) -> str:
        """Press Tab, and return the tag and name of the focused element."""
        self.keys(Keys.TAB)
        script = """const at = document.activeElement;
            return at.tagName.toLowerCase() + ' ' + (at.getAttribute('aria-label') || at.innerText || at.id || '')"""
        return str(self.driver.execute_script(script)).strip()

    def scheme(self, name: str) -> None:
        """Set the system's color scheme: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def size(self, width: int, height: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    # --- console -----------------------------------------------------------------------------------------------------

    def console_errors(self, expected: Sequence[str] = ()) -> list[str]:
        """Return new errors in the console, except failed requests that the test expects."""
        lines = [str(entry["message"]) for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return [line for line in lines if not any(text in line for text in expected)]


@contextmanager
def browser(base: str, *, dark: bool = False, width: int = 1280, height: int = 900) -> Iterator[Browser]:
    """Run a browser with a new profile.

    :raise RuntimeError: Chromium or its driver is not installed.
    """
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        raise RuntimeError(MISSING)
    options = Options()
    options.binary_location = chromium
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for argument in (
            "--headless=new",
            f"--window-size={width},{height}",
            f"--user-data-dir={profile}",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(chromedriver, log_output=os.devnull))
        try:
            opened = Browser(driver, base)
            opened.scheme("dark" if dark else "light")
            opened.size(width, height)
            yield opened
        finally:
            driver.quit()
