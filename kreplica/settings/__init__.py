"""All broker and topic settings as data, and their values from files, the command line and ZooKeeper.

* ``setting`` one setting: name, type, default, range, run-time change
* ``validators`` allowed values
* ``definitions/`` all settings, by subject
* ``names`` which names are known, and what an unknown one was meant to be
* ``properties`` Java's ``.properties`` format
* ``broker_settings`` a broker's static settings: a file and overrides, checked
* ``listeners`` the values that describe listeners
* ``consistency`` what settings must be together
* ``dynamic`` static and dynamic layers to effective values, and the rows of DescribeConfigs
* ``alterations`` what AlterConfigs, IncrementalAlterConfigs and CreateTopics may do
* ``reference`` the page ``docs/reference/settings.md``: ``python -m kreplica.settings > docs/reference/settings.md``
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
