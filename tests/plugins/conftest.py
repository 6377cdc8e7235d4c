"""Fixture that makes the example plugins importable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kreplica.plugins

EXAMPLES = Path(__file__).parents[2] / "docs" / "plugins"


@pytest.fixture(autouse=True, scope="session")
def examples() -> Iterator[Path]:
    """Extend the path of ``kreplica.plugins``, as ``PYTHONPATH=docs/plugins`` does for a new process."""
    place = str(EXAMPLES / "kreplica" / "plugins")
    kreplica.plugins.__path__.append(place)
    yield EXAMPLES
    kreplica.plugins.__path__.remove(place)
