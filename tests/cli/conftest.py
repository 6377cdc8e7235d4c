"""Fixtures that run commands in this process, against an admin API with scripted responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from fake_admin import FakeAdmin, SingleRun, serving

from kreplica.cli import main


@pytest.fixture
def admin() -> Iterator[FakeAdmin]:
    """An admin API without TLS."""
    with serving() as fake:
        yield fake


Kreplica = Callable[..., Result]


@pytest.fixture
def kreplica(admin: FakeAdmin) -> Kreplica:
    """Return a function that runs a command."""

    def run_command(*words: str, answer: str = "") -> Result:
        environment = {"KREPLICA_ADMIN": admin.url, "KREPLICA_TOKEN_FILE": "", "KREPLICA_CA_FILE": ""}
        return CliRunner(env=environment).invoke(main, words, input=answer, obj=SingleRun(), catch_exceptions=False)

    return run_command
