"""The page about other people's tests says what is so."""

from __future__ import annotations

from upstream_page import PAGE, text


def test_the_page_is_what_the_tables_say() -> None:
    """Whoever changes a table runs ``python tests/upstream/upstream_page.py``, and the page tells it."""
    assert PAGE.read_text() == text()
