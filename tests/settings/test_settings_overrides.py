"""Settings in environment variables have the names that Apache Kafka's container image reads."""

from __future__ import annotations

import pytest

from kreplica.errors import SettingsError
from kreplica.settings import BROKER_SETTINGS, BrokerSettings
from kreplica.settings.overrides import environment_overrides, parse_override, setting_of_variable, variable_of_setting

MINIMUM = {"KAFKA_BROKER_ID": "1", "KAFKA_ZOOKEEPER_CONNECT": "127.0.0.1:2181"}


def settings(**variables: str) -> BrokerSettings:
    return BrokerSettings.from_text("", environment_overrides(MINIMUM | variables), origin="the environment")


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_KREPLICA_ADMIN_LISTENER", "kreplica.admin.listener"),
        ("KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET", "zookeeper.clientCnxnSocket"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___512_SASL_JAAS_CONFIG",
         "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"),
    ],
)  # fmt: skip
def test_names(variable: str, name: str) -> None:
    """One, two and three underscores become a dot, an underscore and a hyphen; capitals are those of the setting."""
    assert setting_of_variable(variable) == name
    assert variable_of_setting(name) == variable


@pytest.mark.parametrize("name", BROKER_SETTINGS)
def test_each_setting_has_a_variable(name: str) -> None:
    assert setting_of_variable(variable_of_setting(name)) == name


def test_variables_of_the_java_virtual_machine_are_ignored() -> None:
    """A compose file for Apache Kafka's image works; variables without the prefix are not read."""
    parsed = settings(KAFKA_HEAP_OPTS="-Xmx1g", KAFKA_OPTS="", NUM_PARTITIONS="3", KREPLICA_ADMIN="http://127.0.0.1:1")
    assert set(parsed.configured_names) == {"broker.id", "zookeeper.connect"}


def test_invalid_variable_is_named() -> None:
    """The error names the variable, such as one that Kubernetes sets for a service named kafka."""
    with pytest.raises(SettingsError, match=r"environment variable KAFKA_NUM_PARTITIONS: .*'x' is not allowed"):
        settings(KAFKA_NUM_PARTITIONS="x")
    with pytest.raises(SettingsError, match=r"environment variable KAFKA_SERVICE_HOST: unknown setting 'service.host'"):
        settings(KAFKA_SERVICE_HOST="10.0.0.1")


def test_options_take_precedence_over_variables() -> None:
    variables = environment_overrides({**MINIMUM, "KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_DIRS": "/a"})
    parsed = BrokerSettings.from_text("num.partitions=2\n", [*variables, parse_override("num.partitions=4")])
    assert (parsed["num.partitions"], parsed.log_dirs) == (4, ("/a",))


def test_values_are_not_shown() -> None:
    """The representation hides the value, which may be a secret."""
    (override,) = environment_overrides({"KAFKA_SSL_KEY_PASSWORD": "secret"})
    assert "secret" not in repr(override)
