"""Commands, routes and znodes in ``docs/reference/rest.md``."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from kreplica.admin.security.route_reference import permissions_table
from tests.support.standalone import StandaloneProcess

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "rest.md").read_text()


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with StandaloneProcess(tmp_path_factory.mktemp("rest"), brokers=3) as started:
        yield started


@pytest.mark.needs_program("curl", "jq")
def test_the_session_prints_the_shown_output(process):
    """Each command on the page prints the shown output; an ellipsis matches parts that vary."""
    (block,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    assert len(steps) >= 10
    for command, expected in steps:
        moved = command.replace("127.0.0.1:8080", f"127.0.0.1:{process.admin_port}")
        done = subprocess.run(["bash", "-o", "pipefail", "-c", moved], capture_output=True, text=True, timeout=60)
        pattern = ".*?".join(map(re.escape, expected.split("…")))
        assert re.fullmatch(pattern, done.stdout), (command, done.stdout, done.stderr)


def test_every_route_is_on_the_page(process):
    """The page and the OpenAPI document have the same routes."""
    document = json.load(urlopen(f"{process.admin_url}/openapi.json"))
    known = {f"{method.upper()} {path}" for path, row in document["paths"].items() for method in row}
    buttons = {route for route in known if route.startswith("POST /v1/standalone/")}
    metadata = set(re.findall(r"`((?:GET|PUT|POST|PATCH|DELETE) /[^`?]*)`", PAGE)) - {"GET /v1/configs/..."}
    assert known - metadata - buttons == set()
    assert metadata - known == set()


def test_the_znodes_of_each_write(process):
    """For each write, the page names the same znodes as the OpenAPI document."""
    document = json.load(urlopen(f"{process.admin_url}/openapi.json"))
    rows = dict(re.findall(r"^\| `((?:PUT|POST|PATCH|DELETE) [^`]+)` \|[^|]*\| (.*) \|$", PAGE, re.MULTILINE))
    checked = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for znode in operation.get("x-kreplica-znodes", ()):
                metadata = rows[f"{method.upper()} {path}"]
                parent = re.split(r"/\{|/steps|/progress|_$", znode)[0]
                assert parent in metadata, (method, path, znode)
                checked += 1
    assert checked >= 10


def test_permissions_of_each_route():
    """The table of permissions equals the output of ``python -m kreplica.admin.security.route_reference``."""
    assert permissions_table() in PAGE
