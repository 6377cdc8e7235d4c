"""Definitions of all settings, and parsing and formatting of values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreplica.settings.definitions import BROKER_GROUPS, BROKER_SETTINGS, TOPIC_SETTINGS
from kreplica.settings.setting import Setting, Type, Update, format_value
from kreplica.settings.validators import EachOneOf, OneOf, Range, ReleaseVersion, ThrottledReplicas, at_least, between

ALL = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_default_is_valid(setting):
    """Parsing the text of a default returns the default."""
    if setting.default is not None:
        text = format_value(setting.default)
        assert text is not None
        assert setting.parse(text) == setting.default


def test_every_setting_is_documented():
    """The documentation says in one sentence what the setting does, or what happens instead."""
    for setting in ALL:
        assert setting.documentation or setting.actual_behavior, setting.name
        if setting.implemented:
            assert setting.documentation.endswith("."), setting.name
        else:
            assert setting.actual_behavior, setting.name
            assert not setting.actual_behavior.endswith("."), setting.name


def test_names_are_unique():
    names = [setting.name for group in BROKER_GROUPS.values() for setting in group]
    assert len(names) == len(set(names)) == len(BROKER_SETTINGS)


def test_number_of_settings_equals_apache_kafka_3_9():
    """Kafka 3.9 has 328 broker settings, three that are only dynamic, and 36 topic settings.

    Additional settings start with ``kreplica.``. ``super.users`` and ``allow.everyone.if.no.acl.found`` are settings of
    Kafka's authorizer.
    """
    kafka_names = [name for name in BROKER_SETTINGS if not name.startswith("kreplica.")]
    additional = ["transaction.two.phase.commit.enable", "super.users", "allow.everyone.if.no.acl.found"]
    assert len(kafka_names) == 328 + 3 + len(additional)
    assert len(TOPIC_SETTINGS) == 36


def test_synonyms_are_broker_settings_with_the_same_default():
    """The units of a setting and its synonym may differ."""
    hours = 60 * 60 * 1000
    for topic in TOPIC_SETTINGS.values():
        defaults = []
        for name in topic.synonyms:
            default = BROKER_SETTINGS[name].default
            assert BROKER_SETTINGS[name].type is topic.type or name.endswith((".hours", ".minutes"))
            if default is not None:
                defaults.append(default * hours if name.endswith(".hours") else default)
        assert all(default == topic.default for default in defaults), topic.name


def test_dynamic_settings():
    """A setting is read-only, or dynamic per broker or cluster-wide."""
    assert BROKER_SETTINGS["advertised.listeners"].update is Update.READ_ONLY
    names = ("num.partitions", "principal.builder.class", "log.retention.ms")
    kinds = {name: BROKER_SETTINGS[name].update for name in names}
    assert list(kinds.values()) == [Update.READ_ONLY, Update.PER_BROKER, Update.CLUSTER_WIDE]


def test_passwords_are_sensitive():
    """Exactly the settings of type password are hidden."""
    assert BROKER_SETTINGS["ssl.key.password"].sensitive
    assert not BROKER_SETTINGS["ssl.keystore.location"].sensitive


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("log.retention.ms", "ms"),
        ("log.retention.hours", "hours"),
        ("log.segment.bytes", "bytes"),
        ("log.cleaner.dedupe.buffer.size", "bytes"),
        ("log.cleaner.io.max.bytes.per.second", "bytes per second"),
        ("leader.imbalance.per.broker.percentage", "percent"),
        ("leader.imbalance.check.interval.seconds", "seconds"),
        ("num.partitions", ""),
        ("message.max.bytes", "bytes"),
    ],
)
def test_units(name, unit):
    """The unit follows from the end of a name."""
    assert BROKER_SETTINGS[name].unit == unit


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (Type.BOOLEAN, " TRUE ", True),
        (Type.BOOLEAN, "False", False),
        (Type.INT, " +7 ", 7),
        (Type.INT, "-2147483648", -(2**31)),
        (Type.SHORT, "32767", 32767),
        (Type.LONG, "9223372036854775807", 2**63 - 1),
        (Type.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (Type.DOUBLE, ".5", 0.5),
        (Type.LIST, "", ()),
        (Type.LIST, " a , b,c ", ("a", "b", "c")),
        (Type.STRING, "  text ", "text"),
        (Type.STRING, "", ""),
        (Type.CLASS, "a.B", "a.B"),
        (Type.PASSWORD, "secret", "secret"),
    ],
)
def test_valid_values(type_, text, value):
    """White space around a value is ignored; numbers may have a sign."""
    assert Setting("name", type_, None).parse(text) == value


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (Type.BOOLEAN, "yes"),
        (Type.BOOLEAN, ""),
        (Type.INT, "1.0"),
        (Type.INT, "1_000"),
        (Type.INT, "٣"),
        (Type.INT, ""),
        (Type.INT, "2147483648"),
        (Type.SHORT, "-32769"),
        (Type.LONG, "9223372036854775808"),
        (Type.LONG, "9" * 5000),
        (Type.DOUBLE, "half"),
        (Type.DOUBLE, "1_0"),
        (Type.DOUBLE, "٣"),
        (Type.DOUBLE, "nan"),
    ],
)
def test_malformed_values_are_refused(type_, text):
    """The error contains the setting, the value and the expected type."""
    with pytest.raises(ValueError, match=r"^name: .* is not allowed; expected (true or false|a whole number|a number)"):
        Setting("name", type_, None).parse(text)


def test_refused_secret_is_hidden():
    """Error messages are logged, so they must not contain passwords."""
    setting = Setting("name", Type.PASSWORD, None, OneOf(("x",)))
    with pytest.raises(ValueError) as caught:
        setting.parse("hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("valid", "good", "bad", "words"),
    [
        (at_least(1), [1, 99], [0, "1", None], "at least 1"),
        (between(0, 1), [0, 0.5, 1], [-0.1, 1.1], "0 to 1"),
        (Range(1, 9, special_value=-1), [1, 9, -1], [0, 10, -2], "1 to 9, or -1"),
        (Range(high=3), [3, -9], [4], "at most 3"),
        (OneOf(("a", "b")), ["a"], ["A", "c"], "one of a, b"),
        (OneOf(("a",), ignore_case=True), ["a", "A"], ["b"], "one of a"),
        (EachOneOf(("a", "b")), [(), ("b", "a")], [("a", "c"), "a"], "a list that may contain a, b"),
        (
            ReleaseVersion(),
            ["3.9", "3.9.1", "2.8-IV1", "0.10.2-IV0", "0.10.0.0", "0.11.0", "0.9.0.1", "1.0.0"],
            ["3", "3.9-IV", "x", "0.10", "0.12.0", "0.0.1", "", "3.x.1"],
            "a release",
        ),
        (ThrottledReplicas(), [(), ("*",), ("0:1", "12:3")], [("*", "0:1"), ("0",), ("a:b",), "*"], "partition:broker"),
    ],
)
def test_rules(valid, good, bad, words):
    """Each rule accepts its valid values, rejects others, and has a description."""
    assert all(valid.accepts(value) for value in good)
    assert not any(valid.accepts(value) for value in bad)
    assert words in valid.allowed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (7, "7"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e-5, "1.0E-5"),
        (-2.5e-4, "-2.5E-4"),
        (math.inf, "Infinity"),
        (("a", "b"), "a,b"),
        ((), ""),
        ("text", "text"),
    ],
)
def test_values_are_formatted_as_in_java(value, text):
    """Tools compare values as text, so the format must equal that of Java."""
    assert format_value(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_number_round_trip(value):
    """Formatting and parsing lose no digits."""
    assert Setting("name", Type.DOUBLE, None).parse(format_value(value) or "") == value
