"""Accessibility violations that axe-core finds on a page."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from .browser import Browser

AXE = (resources.files("axe_core_python") / "axe.min.js").read_text()

RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")

CONTRAST = ("color-contrast",)


def violations(page: Browser, rules: Sequence[str] = RULES, within: str = "html") -> list[str]:
    """Return one line per violation: rule, description and elements; empty without violations.

    :param within: selector of the element whose content is checked.
    """
    if not page.driver.execute_script("return Boolean(window.axe)"):
        page.driver.execute_script(AXE)
    found = page.driver.execute_async_script(
        """const done = arguments[arguments.length - 1];
        axe.run(arguments[1], {runOnly: arguments[0]}).then(result => done(result.violations));""",
        list(rules),
        within,
    )
    return [f"{fault['id']}: {fault['help']}: {_places(fault['nodes'])}" for fault in found]


def _places(nodes: list[dict[str, str]]) -> str:
    return "; ".join(f"{node['html'][:120]}: {node['failureSummary']}" for node in nodes[:3])
