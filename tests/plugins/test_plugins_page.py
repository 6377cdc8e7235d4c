"""Checks of the documentation page about plugins."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from twisted.plugin import getPlugins

import kreplica.plugins
from kreplica.errors import KafkaError
from kreplica.formats.built_in import FORMATS
from kreplica.interfaces import IPluginMaker
from kreplica.service.plugins import plugin_creation
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record
from tests.support.server_process import free_ports
from tests.support.standalone import StandaloneProcess

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "plugins.md").read_text()
COMMANDS = [
    line.replace("\\\n", " ")
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
]


def test_example_works(tmp_path: Path, monkeypatch):
    """The example plugin on the page, in a separate directory, refuses the documented records."""
    block = next(iter(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)))
    place = tmp_path / "kreplica" / "plugins"
    place.mkdir(parents=True)
    (place / "mine.py").write_text(block)
    monkeypatch.setattr(kreplica.plugins, "__path__", [*kreplica.plugins.__path__, str(place)])
    cluster = SimulatedCluster(1, overrides=["kreplica.produce.interceptors=no-empty-values"])
    cluster.start()
    client = cluster.client()
    cluster.run_until(client.create_topic("t"))
    cluster.run_until(client.produce("t", 0, build_batch([Record(-1, 1, None, b"v")])))
    with pytest.raises(KafkaError, match="INVALID_RECORD: no-empty-values: some values are empty"):
        cluster.run_until(client.produce("t", 0, build_batch([Record(-1, 1, None, b"")])))
    cluster.stop()


def test_table_lists_every_plugin():
    """The table lists exactly the built-in and the example plugins."""
    rows = re.findall(r"^\| `(kreplica\.[\w.]+)` \|[^|]*\| `([\w-]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    one_plugin = {plugin_creation.PLACEMENT, plugin_creation.ELECTION, plugin_creation.AUTHORIZER}
    several_plugins = {plugin_creation.INTERCEPTORS, plugin_creation.REPORTERS, plugin_creation.LISTENERS}
    assert {row[0] for row in rows} == one_plugin | several_plugins
    listed = {name for _, built_in, more in rows for name in (built_in, *re.findall(r"\[`([\w-]+)`\]", more))}
    found = {maker.name for maker in getPlugins(IPluginMaker, kreplica.plugins)}
    formats = {maker.name for maker in FORMATS}
    assert listed | formats == found | set(plugin_creation.BUILT_IN.values())
    assert [name for name in formats if f"`{name}`" not in PAGE] == []


def overrides(command: str) -> list[str]:
    words = shlex.split(command)
    assert words[0] == "PYTHONPATH=docs/plugins"
    start = words.index("standalone") + 1
    return words[start:]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(line, marks=[pytest.mark.needs_program("kcat")] if "deliver-at" in line else [])
        for line in COMMANDS
        if "twistd" in line
    ],
)
def test_broker_starts_with_the_example(command, tmp_path, monkeypatch):
    """The command on the page, with other ports, starts a broker."""
    (port,) = free_ports(1)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "docs" / "plugins"))
    words = [word.replace("127.0.0.1:9099", f"127.0.0.1:{port}") for word in overrides(command)]
    with StandaloneProcess(tmp_path, arguments=tuple(words)) as process:
        for line in COMMANDS:
            if "kcat" in line and "deliver-at" in command:
                produced = line.replace("127.0.0.1:9092", process.bootstrap_servers)
                done = subprocess.run(
                    ["bash", "-c", produced], env=os.environ, capture_output=True, text=True, timeout=60, check=False
                )
                assert done.returncode == 0, done.stderr
    assert "Traceback" not in process.all_output


def test_page_has_commands():
    assert len(COMMANDS) == 3
