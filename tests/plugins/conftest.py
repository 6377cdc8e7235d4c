"""The examples are found as anybody's plugins are: by their place on the path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kreplica.plugins

EXAMPLES = Path(__file__).parents[2] / "docs" / "plugins"


@pytest.fixture(autouse=True, scope="session")
def examples() -> Iterator[Path]:
    """As with ``PYTHONPATH=docs/plugins``, for a process that has been started already."""
    place = str(EXAMPLES / "kreplica" / "plugins")
    kreplica.plugins.__path__.append(place)
    yield EXAMPLES
    kreplica.plugins.__path__.remove(place)
