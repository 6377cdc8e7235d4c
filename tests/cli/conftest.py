"""Commands run in this process, against an admin API with scripted responses."""

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

    def type_in(*words: str, answer: str = "") -> Result:
        given = {"KREPLICA_ADMIN": admin.url, "KREPLICA_TOKEN_FILE": "", "KREPLICA_CA_FILE": ""}
        return CliRunner(env=given).invoke(main, words, input=answer, obj=SingleRun(), catch_exceptions=False)

    return type_in
