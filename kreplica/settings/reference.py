"""The reference page of all settings, written from the tables: ``docs/reference/settings.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kreplica.settings.definitions import BROKER_GROUPS, BROKER_SETTINGS, TOPIC_SETTINGS
from kreplica.settings.setting import Setting, Type, format_value

_INTRODUCTION = """\
# Settings

A broker reads its settings from a file in the format of Kafka's `server.properties`; names, units and defaults are
those of Apache Kafka 3.9. `--override name=value` wins over the file. kreplica's own settings begin with
`kreplica.`. A name that does not exist, or a value that is not allowed, stops the start with an error that says
where it stands. Settings that kreplica [knows and does not obey](#known-not-obeyed) are accepted with a warning,
except those that promise protection (encryption, authentication, authorization, quotas, policies): with another value
than Kafka's default they stop the start, since the broker would serve clients that they turn away. The same holds for
such settings in ZooKeeper (`/config/brokers`), which `kafka-configs` or Kafka's brokers may have written; a request
that sets one is refused. One that is written into ZooKeeper while the broker runs is logged as critical.

*At run time* says how a setting changes while the broker runs: *restart* means that it does not, *one broker* that
it is set for each broker by itself, *all brokers* that it can be set for all together or for one. Those changes,
and the settings of topics, are made with any Kafka client or tool (`kafka-configs`, `IncrementalAlterConfigs`).
What is set for a topic counts first, then what is set for the one broker, then for all brokers, then the broker's
file, then the default.

This page is written by `python -m kreplica.settings`; do not edit it.
"""
_AT_RUN_TIME = {"read-only": "restart", "per-broker": "one broker", "cluster-wide": "all brokers"}
_BROKER_HEAD = "| setting | default | allowed | at run time | what it does |\n|---|---|---|---|---|"
_TOPIC_HEAD = "| setting | default | allowed | default from the broker's | what it does |\n|---|---|---|---|---|"
_KNOWN_HEAD = "| setting | default | another value | what happens instead |\n|---|---|---|---|"


def reference_page() -> str:
    """The whole page, in Markdown."""
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
    yield "## Known, not obeyed\n"
    yield from _table("### Brokers: known", _KNOWN_HEAD, _known_rows(BROKER_SETTINGS.values()))
    yield from _table("### Topics: known", _KNOWN_HEAD, _known_rows(TOPIC_SETTINGS.values()))


def _table(heading: str, head: str, rows: Iterable[str]) -> Iterator[str]:
    yield f"{heading}\n"
    yield head
    yield from rows
    yield ""


def _broker_row(setting: Setting) -> str:
    return _row(
        f"`{setting.name}`",
        _default(setting),
        _allowed(setting),
        _AT_RUN_TIME[setting.update.value],
        setting.documentation,
    )


def _topic_row(setting: Setting) -> str:
    synonyms = ", ".join(f"`{name}`" for name in setting.synonyms)
    return _row(f"`{setting.name}`", _default(setting), _allowed(setting), synonyms, setting.documentation)


def _known_rows(settings: Iterable[Setting]) -> Iterator[str]:
    for setting in settings:
        if setting.instead is not None:
            outcome = "a warning" if setting.harmless is None else "stops the start"
            yield _row(f"`{setting.name}`", _default(setting), outcome, setting.instead)


def _default(setting: Setting) -> str:
    text = format_value(setting.default)
    if text is None:
        return "not set"
    return " ".join(filter(None, (f"`{text}`", setting.unit))) if text else "empty"


def _allowed(setting: Setting) -> str:
    """As errors say it, except that the bounds of a type are no news on a page."""
    whole = setting.type in {Type.SHORT, Type.INT, Type.LONG}
    return "a whole number" if whole and not setting.valid.allowed else setting.expected


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
