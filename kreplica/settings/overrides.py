"""Overrides of settings, from the command line (``--override name=value``) and from environment variables.

The variables have the names that Apache Kafka's container image reads: ``KAFKA_`` and the setting in upper case, with
``_`` for a dot, ``__`` for an underscore and ``___`` for a hyphen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kreplica.errors import SettingsError
from kreplica.settings.definitions import BROKER_SETTINGS

PREFIX = "KAFKA_"

JAVA_VARIABLES = frozenset(
    PREFIX + name
    for name in (
        "GC_LOG_OPTS", "HEAP_OPTS", "JMX_HOSTNAME", "JMX_OPTS", "JMX_PORT", "JVM_PERFORMANCE_OPTS", "LOG4J_CMD_OPTS",
        "LOG4J_LOGGERS", "LOG4J_OPTS", "LOG4J_ROOT_LOGLEVEL", "OPTS", "TOOLS_LOG4J_LOGLEVEL", "VERSION",
    )
)  # fmt: skip
"""Variables of Kafka's image that configure its Java VM; ignored, so that its environment files can be reused."""

_SIGNS = {"_": ".", "__": "_", "___": "-"}
_NAMES = {name.lower(): name for name in BROKER_SETTINGS}


class Override(NamedTuple):
    """A value that takes precedence over the settings file.

    :param variable: the environment variable that contains the value; None if it is from the command line.
    """

    name: str
    value: str
    variable: str | None = None

    @property
    def place(self) -> str:
        """Location of the value for error messages."""
        return f"environment variable {self.variable}" if self.variable is not None else f"--override {self.name}"

    def __repr__(self) -> str:
        """Return only the location, since the value may be a secret."""
        return f"<Override {self.place}>"


def parse_override(text: str) -> Override:
    """Parse an option ``name=value``.

    :raise SettingsError: there is no equals sign.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"--override {text}: expected name=value")
    return Override(name.strip(), value)


def environment_overrides(environment: Mapping[str, str]) -> tuple[Override, ...]:
    """Return the settings in environment variables, sorted by variable."""
    return tuple(
        Override(setting_of_variable(variable), value, variable)
        for variable, value in sorted(environment.items())
        if variable.startswith(PREFIX) and variable not in JAVA_VARIABLES
    )


def setting_of_variable(variable: str) -> str:
    """Return the name of the setting that a variable sets; the setting may not exist."""
    name = re.sub("_{1,3}", lambda found: _SIGNS[found[0]], variable.removeprefix(PREFIX)).lower()
    return _NAMES.get(name, name)


def variable_of_setting(name: str) -> str:
    """Return the name of the variable that sets a setting."""
    signs = {sign: text for text, sign in _SIGNS.items()}
    return PREFIX + "".join(signs.get(each, each) for each in name).upper()
