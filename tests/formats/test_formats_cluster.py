"""Formats on a running broker: the REST API and the commands, with a schema registry and a plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from kreplica.cli import main
from kreplica.security.tls.development_ca import create_certificate, open_authority
from tests.support.schema_registry import TestRegistry
from tests.support.standalone import StandaloneProcess

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "total", "type": "double"}, {"name": "customer", "type": ["null", "string"], "default": None}],
}
USER_INFO = "reader:very secret"
PLUGIN = """
from zope.interface import implementer
from kreplica.interfaces import Decoded, FormatError, IRecordFormat, Plugin

reversed_text = Plugin("reversed", IRecordFormat, "kreplica.plugins.reversed_text:Reversed", "Reversed text.",
                       {"mark": "First character of a reversed text."})

@implementer(IRecordFormat)
class Reversed:
    can_encode = True
    schema_type = None

    def __init__(self, context):
        self._mark = context.settings["mark"].encode()

    def recognizes(self, data, place):
        return data.startswith(self._mark)

    def decode(self, data, place):
        if data == self._mark:
            raise RuntimeError("a bug in the plugin")
        return Decoded(data[1:].decode()[::-1])

    def encode(self, value, schema, message):
        return self._mark + value[::-1].encode()
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    create_certificate(directory, open_authority(directory, 1), "registry", ["127.0.0.1"], 1)
    return directory


@pytest.fixture(scope="module")
def registry(certificates: Path) -> Iterator[TestRegistry]:
    """A registry with TLS and authentication."""
    with TestRegistry(USER_INFO, certificates / "registry.pem") as running:
        running.register("orders-value", json.dumps(ORDER))
        yield running


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, registry: TestRegistry, certificates: Path
) -> Iterator[StandaloneProcess]:
    directory = tmp_path_factory.mktemp("formats")
    plugins = directory / "plugins" / "kreplica" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "reversed_text.py").write_text(PLUGIN)
    overrides = {
        "kreplica.schema.registry.url": registry.url,
        "kreplica.schema.registry.basic.auth.user.info": USER_INFO,
        "kreplica.schema.registry.ca.file": str(certificates / "ca.pem"),
        "kreplica.record.formats": "reversed",
        "kreplica.plugin.reversed.mark": "<",
    }
    arguments = [word for name, value in overrides.items() for word in ("--override", f"{name}={value}")]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(directory / "plugins")
    try:
        running = StandaloneProcess(directory, arguments=tuple(arguments))
        with running:
            yield running
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def request_json(broker: StandaloneProcess, path: str, body: Any = None, **query: Any) -> Any:
    data = None if body is None else json.dumps(body).encode()
    url = f"{broker.admin_url}{path}" + (f"?{urlencode(query)}" if query else "")
    try:
        with urlopen(Request(url, data, {"content-type": "application/json"}), timeout=30) as answer:
            return json.load(answer)
    except HTTPError as error:
        return json.load(error)


def run_command(broker: StandaloneProcess, *words: str, status: int = 0, **environment: str) -> str:
    """Run a command and return its output."""
    variables = {"KREPLICA_BOOTSTRAP": broker.bootstrap_servers, **environment}
    result = CliRunner().invoke(main, list(words), env=variables)
    assert result.exit_code == status, result.output
    return result.output


def create(broker: StandaloneProcess, topic: str, partitions: int = 1) -> None:
    request_json(broker, "/v1/topics", {"name": topic, "partitions": partitions, "replication_factor": 1})


def test_avro_by_rest(broker: StandaloneProcess, registry: TestRegistry) -> None:
    """Messages are written, read and filtered with a schema, which is requested from the registry once."""
    create(broker, "orders")
    path = "/v1/topics/orders/messages"
    for total in (50, 150, 250):
        body = {"value": {"total": total}, "value_format": "avro", "value_schema": {"subject": "orders-value"}}
        assert "offset" in request_json(broker, path, body)
    request_json(broker, path, {"value": "0000000063ff", "value_format": "hex"})
    before = len(registry.requests)
    for _ in range(3):
        page = request_json(broker, path, filter="value.total > 100.0", order="newest")
        assert [row["value"]["value"] for row in page["messages"]] == [
            {"total": 250.0, "customer": None},
            {"total": 150.0, "customer": None},
        ]
        assert (page["scanned"], page["filter_errors"]) == (4, 1)
    assert page["messages"][0]["value"]["schema"]["subject"] == "orders-value"
    # Schema 99 does not exist; the failure is cached.
    assert registry.requests[before:] == ["/schemas/ids/99"]
    (row,) = request_json(broker, path, **{"from": "offset:3"})["messages"]
    assert (row["value"]["format"], row["value"]["error"]) == ("hex", "the schema registry does not have schema 99")


BAD_BODIES = [
    ({"value": {"total": "x"}}, "body.value as avro: does not match schema 1: value.Order.total is <x> of type"),
    ({"value": {"totl": 1}}, "body.value as avro: value.totl: the record Order has no such field"),
    ({"value": {}, "value_schema": {"id": 77}}, "body.value as avro: the schema registry does not have schema 77"),
    ({"value": {}, "value_schema": {}}, "body.value_schema: the format requires either the ID or the subject"),
    ({"value": {}, "value_format": "xml"}, "body.value_format: unknown format 'xml'"),
    ({"value": {}, "value_format": "group-record"}, "body.value_format: records cannot be written as group-record"),
    ({"value": 5, "value_format": "text"}, "body.value as text: expected a string"),
]


@pytest.mark.parametrize(("body", "detail"), BAD_BODIES, ids=[row[1] for row in BAD_BODIES])
def test_invalid_values(broker: StandaloneProcess, body: Any, detail: str) -> None:
    """The error names the invalid field."""
    create(broker, "strict")
    defaults = {"value_format": "avro", "value_schema": {"subject": "orders-value"}}
    problem = request_json(broker, "/v1/topics/strict/messages", {**defaults, **body})
    assert problem["status"] == 400
    assert problem["detail"].startswith(detail)


def test_plugin(broker: StandaloneProcess) -> None:
    """A plugin is tried first, and its exceptions are shown with the message."""
    names = [row["name"] for row in request_json(broker, "/v1/formats")["formats"]]
    assert names[0] == "reversed"
    create(broker, "mirrored")
    path = "/v1/topics/mirrored/messages"
    request_json(broker, path, {"value": "abc", "value_format": "reversed"})
    request_json(broker, path, {"value": "<"})
    first, second = request_json(broker, path)["messages"]
    assert (first["value"]["format"], first["value"]["value"], first["value"]["size_bytes"]) == ("reversed", "abc", 4)
    assert second["value"]["error"] == "the format failed: RuntimeError('a bug in the plugin')"


def test_redirects(broker: StandaloneProcess, registry: TestRegistry) -> None:
    """Redirects are not followed, so the registry cannot send the broker to other servers."""
    create(broker, "redirected")
    path = "/v1/topics/redirected/messages"
    request_json(broker, path, {"value": "000000012e00", "value_format": "hex"})
    before = len(registry.requests)
    (row,) = request_json(broker, path)["messages"]
    assert row["value"]["error"] == "the schema registry returned status 302 for schema 302"
    assert registry.requests[before:] == ["/schemas/ids/302"]


def test_commands(broker: StandaloneProcess, registry: TestRegistry, certificates: Path, tmp_path: Path) -> None:
    """``produce`` encodes and ``consume`` decodes, filters and shows columns."""
    create(broker, "sales", 2)
    credentials = tmp_path / "registry-user"
    credentials.write_text(USER_INFO)
    access = {
        "KREPLICA_SCHEMA_REGISTRY": registry.url,
        "KREPLICA_SCHEMA_REGISTRY_USER_FILE": str(credentials),
        "KREPLICA_SCHEMA_REGISTRY_CA_FILE": str(certificates / "ca.pem"),
    }
    lines = tmp_path / "lines"
    lines.write_text("".join(f'k{number}|{{"total": {number}}}\n' for number in range(6)))
    encoded = ("--key-separator", "|", "--value-format", "avro", "--subject", "orders-value")
    options = (*encoded, "--file", str(lines))
    run_command(broker, "produce", "sales", *options, **access)
    shown = run_command(
        broker, "consume", "sales", "--columns", "key,value.total", "--filter", "value.total > 3.0", **access
    )
    header, *rows = shown.splitlines()
    assert (header, sorted(rows)) == ("key\tvalue.total", ["k4\t4.0", "k5\t5.0"])
    newest = run_command(broker, "consume", "sales", "--newest", "2", "--value-format", "auto",
                         "--format", "{key} {value}\\n", **access)  # fmt: skip
    assert newest.splitlines() == ['k4 {"total":4.0,"customer":null}', 'k5 {"total":5.0,"customer":null}']
    rows = run_command(
        broker, "consume", "sales", "--json", "--value-format", "avro", "--count", "1", **access
    ).splitlines()
    assert json.loads(rows[0])["value"]["schema"]["subject"] == "orders-value"
    lines.write_text('k|{"total": "x"}\n')
    failed = run_command(broker, "produce", "sales", *options, status=1, **access)
    assert "the value as avro: does not match schema 1: value.Order.total is <x>" in failed
    assert "very secret" not in failed
    del access["KREPLICA_SCHEMA_REGISTRY_CA_FILE"]
    untrusted = run_command(broker, "consume", "sales", "--value-format", "avro", "--count", "1", **access)
    assert "the schema registry does not respond" in untrusted
    assert "certificate verify failed" in untrusted


def test_raw_output(broker: StandaloneProcess) -> None:
    """Without options and with --filter, the bytes of the records are printed."""
    create(broker, "raw")
    request_json(broker, "/v1/topics/raw/messages", {"value": "00ff", "value_format": "hex"})
    request_json(broker, "/v1/topics/raw/messages", {"value": '{"a":   1}'})
    command = [sys.executable, "-m", "kreplica.cli", "consume", "raw"]
    environment = {**os.environ, "KREPLICA_BOOTSTRAP": broker.bootstrap_servers}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=True)
    assert done.stdout == b'\x00\xff\n{"a":   1}\n'
    filtered = run_command(broker, "consume", "raw", "--filter", "value.a == 1")
    assert filtered.startswith('{"a":   1}\nkreplica: the filter failed for 1 record: partition 0, offset 0: ')


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--filter", "value.a >"), "--filter: the expression is incomplete: it ends after `>`"),
        (("--value-format", "xml"), "--value-format: unknown format 'xml'"),
        (("--columns", "nothing"), "unknown column nothing"),
        (("--columns", "key", "--json"), "--json and --columns cannot be combined"),
        (("--newest", "1", "--from", "latest"), "--newest and --from cannot be combined"),
    ],
)
def test_invalid_options(broker: StandaloneProcess, words: tuple[str, ...], message: str) -> None:
    assert message in run_command(broker, "consume", "raw", *words, status=2)


def test_secrets(broker: StandaloneProcess) -> None:
    """No log, setting or error contains the registry's password."""
    settings = request_json(broker, "/v1/configs/brokers/1")
    text = json.dumps(settings) + broker.all_output
    text += json.dumps(request_json(broker, f"/v1/topics/orders/messages?filter={quote('value.x')}"))
    assert "very secret" not in text
