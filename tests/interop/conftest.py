"""One standalone broker for all tests with real clients, and what they send."""

import os
import shutil
import uuid

import pytest

from kreplica.testing.standalone import StandaloneProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A broker in a process of its own, as ``make run`` starts it."""
    with StandaloneProcess(tmp_path_factory.mktemp("standalone")) as process:
        yield process


@pytest.fixture
def topic():
    """A name that nobody has used."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def kcat():
    """Debian's kcat; continuous integration installs it, elsewhere ``apt install kcat`` does."""
    path = shutil.which("kcat")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("kcat is not installed")
        pytest.skip("kcat is not installed (Debian: apt install kcat)")
    return path
