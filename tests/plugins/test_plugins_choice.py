"""Plugins are selected by name; errors are reported before the broker starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import kreplica.plugins
from kreplica.errors import SettingsError
from kreplica.interfaces import IExtraListener, IMetricsReporter, IProduceInterceptor
from kreplica.service.plugins.discovery import find, makers_of
from kreplica.testing.cluster.cluster import SimulatedCluster


def start(*overrides: str) -> None:
    cluster = SimulatedCluster(1, overrides=overrides)
    try:
        cluster.start()
    finally:
        cluster.stop()


def test_built_in_and_example_plugins_are_found():
    names = {
        interface: {maker.name for maker in makers_of(interface)}
        for interface in (IExtraListener, IMetricsReporter, IProduceInterceptor)
    }
    assert {"agent-check", "line-protocol"} <= names[IExtraListener]
    assert {"log", "statsd"} <= names[IMetricsReporter]
    assert {"required-headers", "json-schema", "deliver-at"} <= names[IProduceInterceptor]
    assert find("kreplica.extra.listeners", "agent-check", IExtraListener).settings.keys() == {"listen"}


def test_unknown_name(tmp_path: Path, monkeypatch):
    """The error for an unknown plugin lists existing ones, and modules that could not be imported, with the reason."""
    (tmp_path / "broken_one.py").write_text("import there_is_no_such_module\n")
    monkeypatch.setattr(kreplica.plugins, "__path__", [*kreplica.plugins.__path__, str(tmp_path)])
    with pytest.raises(SettingsError) as refused:
        start("kreplica.produce.interceptors=json-shema")
    text = str(refused.value)
    assert text.startswith("kreplica.produce.interceptors: unknown plugin 'json-shema'; the plugins are: deliver-at, ")
    assert "broken_one could not be imported: ModuleNotFoundError: No module named 'there_is_no_such_module'" in text


def test_plugin_of_another_kind():
    """A reporter cannot be used as an interceptor, although its name exists."""
    with pytest.raises(SettingsError, match=r"kreplica\.produce\.interceptors: unknown plugin 'log'"):
        start("kreplica.produce.interceptors=log")


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["kreplica.plugin.log.names=a"], "it belongs to no configured plugin; the configured plugins are: none"),
        (
            ["kreplica.metrics.reporters=log", "kreplica.plugin.log.names=a", "kreplica.plugin.log.nmaes=b"],
            "the plugin log has no setting 'nmaes'; did you mean names",
        ),
        (["kreplica.metrics.reporters=log"], "the plugin log cannot be created: names: list at least one metric"),
        (["kreplica.metrics.reporters=log,log", "kreplica.plugin.log.names=a"], "log is listed twice"),
        (["kreplica.placement=tags", "kreplica.plugin.tags.brokers=1"], "brokers: '1' is not of the form NAME:TAG"),
        (["kreplica.authorizer=acl-file", "kreplica.plugin.acl-file.path=/no"], "path: '/no' cannot be read"),
    ],
)
def test_invalid_plugin_settings(overrides, text):
    """With invalid plugin settings, the broker does not start, and the error names the setting and the reason."""
    with pytest.raises(SettingsError) as refused:
        start(*overrides)
    assert text in str(refused.value)
