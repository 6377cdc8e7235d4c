"""One standalone broker for all tests with real clients, and what they send."""

import uuid

import pytest

from tests.support.standalone import StandaloneProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A broker in a process of its own, as ``make run`` starts it."""
    with StandaloneProcess(tmp_path_factory.mktemp("standalone")) as process:
        yield process


@pytest.fixture
def topic():
    """A name that nobody has used."""
    return f"t-{uuid.uuid4().hex[:12]}"
