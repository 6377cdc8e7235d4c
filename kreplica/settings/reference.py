"""Generates the reference page of all settings, ``docs/reference/settings.md``, from their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kreplica.settings.definitions import BROKER_GROUPS, BROKER_SETTINGS, TOPIC_SETTINGS
from kreplica.settings.definitions.zookeeper_server import ZOOKEEPER_SERVER
from kreplica.settings.setting import Setting, Type, format_value

_INTRODUCTION = """\
# Settings

A broker reads its settings from a file in the format of Kafka's `server.properties`. Names, units and defaults are
those of Apache Kafka 3.9; kreplica's own settings start with `kreplica.`. `--override name=value` takes precedence over
the file. If a name is unknown or a value is invalid, the broker does not start, and the error names the line. With
`--environment`, environment variables with the [names of Apache Kafka's
image](../how-to/install.md#container-image), such as `KAFKA_NUM_PARTITIONS`, take precedence over the file too.

Kafka's settings [without effect](#settings-without-effect) are accepted with a warning. Security settings without
effect (Kerberos, callback classes, policies and others) are the exception: if such a setting has a value other than
Kafka's default or an empty value, the broker does not start, because it would serve clients that the setting should
exclude. This includes settings that `kafka-configs` or Kafka's brokers have written to ZooKeeper (`/config/brokers`). A
request that changes such a setting is rejected; if one is written to ZooKeeper while the broker runs, the broker logs a
critical error.

The column *Change* shows how a setting can be changed: with a *restart* of the broker, or at run time for *one broker*
or for *all brokers* (or one of them). Use any Kafka client or tool for changes at run time and for topic settings
(`kafka-configs`, `IncrementalAlterConfigs`). Precedence, highest first: topic, one broker, all brokers, the broker's
file, default.

`python -m kreplica.settings` generates this page; do not edit it.
"""
_AT_RUN_TIME = {"read-only": "restart", "per-broker": "one broker", "cluster-wide": "all brokers"}
_BROKER_HEAD = "| Setting | Default | Allowed | Change | Description |\n|---|---|---|---|---|"
_TOPIC_HEAD = "| Setting | Default | Allowed | Broker setting with the default | Description |\n|---|---|---|---|---|"
_ZOOKEEPER_HEAD = "| Setting | Default | Allowed | Description |\n|---|---|---|---|"
_IGNORED_HEAD = "| Setting | Default | Other values | Behaviour |\n|---|---|---|---|"


def reference_page() -> str:
    """Return the page in Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Brokers\n"
    for title, settings in BROKER_GROUPS.items():
        rows = [_broker_row(setting) for setting in settings if setting.implemented]
        if rows:
            yield from _table(f"### {title}", _BROKER_HEAD, rows)
    topics = (_topic_row(setting) for setting in TOPIC_SETTINGS.values() if setting.implemented)
    yield from _table("## Topics", _TOPIC_HEAD, topics)
    yield "## Embedded ZooKeeper server\n"
    yield "`twistd kreplica coordinator --config FILE` reads these settings; changes take effect after a restart.\n"
    yield _ZOOKEEPER_HEAD
    yield from (_zookeeper_row(setting) for setting in ZOOKEEPER_SERVER)
    yield ""
    yield "## Settings without effect\n"
    yield from _table("### Broker settings without effect", _IGNORED_HEAD, _ignored_rows(BROKER_SETTINGS.values()))
    yield from _table("### Topic settings without effect", _IGNORED_HEAD, _ignored_rows(TOPIC_SETTINGS.values()))


def _table(heading: str, head: str, rows: Iterable[str]) -> Iterator[str]:
    yield f"{heading}\n"
    yield head
    yield from rows
    yield ""


def _broker_row(setting: Setting) -> str:
    return _row(
        f"`{setting.name}`",
        _default(setting),
        _allowed_values(setting),
        _AT_RUN_TIME[setting.update.value],
        setting.documentation,
    )


def _topic_row(setting: Setting) -> str:
    synonyms = ", ".join(f"`{name}`" for name in setting.synonyms)
    return _row(f"`{setting.name}`", _default(setting), _allowed_values(setting), synonyms, setting.documentation)


def _zookeeper_row(setting: Setting) -> str:
    return _row(f"`{setting.name}`", _default(setting), _allowed_values(setting), setting.documentation)


def _ignored_rows(settings: Iterable[Setting]) -> Iterator[str]:
    for setting in settings:
        if setting.actual_behavior is not None:
            outcome = "warning" if setting.unprotected_values is None else "the broker does not start"
            yield _row(f"`{setting.name}`", _default(setting), outcome, setting.actual_behavior)


def _default(setting: Setting) -> str:
    text = format_value(setting.default)
    if text is None:
        return "not set"
    return " ".join(filter(None, (f"`{text}`", setting.unit))) if text else "empty"


def _allowed_values(setting: Setting) -> str:
    """Return the valid values as in error messages, but without the bounds of integer types."""
    whole = setting.type in {Type.SHORT, Type.INT, Type.LONG}
    return "a whole number" if whole and not setting.valid.allowed else setting.expected


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
