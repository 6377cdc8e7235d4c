"""Definitions of all broker and topic settings, and their values from files, the command line and ZooKeeper.

* ``setting``: one setting, with its name, type, default, valid values and update mode
* ``validators``: rules for valid values
* ``definitions/``: all settings, by subject
* ``names``: look-up of settings by name, with suggestions for unknown names
* ``properties``: parser of Java's ``.properties`` format
* ``overrides``: settings on the command line and in environment variables
* ``broker_settings``: the static settings of a broker, from a file and overrides
* ``listeners``: parser of listener settings
* ``consistency``: rules that combine several settings
* ``dynamic``: effective values of static and dynamic settings, and the rows of DescribeConfigs
* ``alterations``: validates changes by AlterConfigs, IncrementalAlterConfigs and CreateTopics
* ``client_metrics``: settings of client metrics subscriptions
* ``reference``: generates the reference page: ``python -m kreplica.settings > docs/reference/settings.md``
"""

from kreplica.settings.alterations import (
    AlterOperation,
    OperationType,
    alter_incrementally,
    validate_broker_config,
    validate_topic_config,
)
from kreplica.settings.broker_settings import BrokerSettings, load
from kreplica.settings.definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from kreplica.settings.dynamic import ConfigRow, EffectiveSettings, Synonym, TopicSettings
from kreplica.settings.setting import Setting, Source, Type, Update

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "AlterOperation",
    "BrokerSettings",
    "ConfigRow",
    "EffectiveSettings",
    "OperationType",
    "Setting",
    "Source",
    "Synonym",
    "TopicSettings",
    "Type",
    "Update",
    "alter_incrementally",
    "load",
    "validate_broker_config",
    "validate_topic_config",
]
