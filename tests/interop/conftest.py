"""One standalone broker for all tests with real clients, and unused topic names."""

import uuid

import pytest

from tests.support.standalone import StandaloneProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A broker in a separate process, as in ``make run``."""
    with StandaloneProcess(tmp_path_factory.mktemp("standalone")) as process:
        yield process


@pytest.fixture
def topic():
    """An unused topic name."""
    return f"t-{uuid.uuid4().hex[:12]}"
