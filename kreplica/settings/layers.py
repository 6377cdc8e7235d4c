"""All that is known of settings at one moment: the broker's file and what ZooKeeper holds, by topic and by broker.

The one object here that changes; its owner tells it what changed, and it works out anew what that concerns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kreplica.settings.alterations import Operation, alter_incrementally, validate_broker_config, validate_topic_config
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from kreplica.settings.dynamic import ConfigRow, EffectiveSettings


class DynamicLayers:
    """Owned by whoever watches ``/config``; begins with nothing dynamic.

    :param static: the broker's file and overrides.
    """

    def __init__(self, static: BrokerSettings) -> None:
        self._static = static
        self._broker: Mapping[str, str] = {}
        self._all_brokers: Mapping[str, str] = {}
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._topics: dict[str, Mapping[str, Any]] = {}
        self.effective = EffectiveSettings(static)
        self._plain_topic = self.effective.topic({}).values

    # --- what changed ------------------------------------------------------------------------------------------------

    def set_topic(self, topic: str, overrides: Mapping[str, str]) -> tuple[str, ...]:
        """A topic's settings are these now; none where it was deleted.

        :return: a sentence for each override that is malformed and does not count.
        """
        self._overrides.pop(topic, None)
        self._topics.pop(topic, None)
        if not overrides:
            return ()
        self._overrides[topic] = dict(overrides)
        resolved = self.effective.topic(overrides)
        self._topics[topic] = resolved.values
        return resolved.ignored

    def set_broker(self, settings: Mapping[str, str], *, cluster_wide: bool) -> tuple[str, ...]:
        """The dynamic settings of this broker, or of all brokers, are these now.

        :return: a sentence for each setting that is malformed and does not count.
        """
        if cluster_wide:
            self._all_brokers = dict(settings)
        else:
            self._broker = dict(settings)
        self.effective = EffectiveSettings(self._static, self._broker, self._all_brokers)
        self._plain_topic = self.effective.topic({}).values
        self._topics = {topic: self.effective.topic(own).values for topic, own in self._overrides.items()}
        return self.effective.ignored

    # --- what counts -------------------------------------------------------------------------------------------------

    def topic(self, topic: str) -> Mapping[str, Any]:
        """A topic's settings, typed, everything filled in; a topic that nobody spoke of has the broker's defaults."""
        return self._topics.get(topic, self._plain_topic)

    def broker(self, name: str) -> Any:
        """The typed value of a broker's setting; None where it is not set and has no default.

        :raise KeyError: there is no such setting.
        """
        return self.effective[name]

    # --- DescribeConfigs ---------------------------------------------------------------------------------------------

    def describe_topic(self, topic: str) -> list[ConfigRow]:
        """Every setting of a topic and where its value comes from."""
        return self.effective.describe_topic(self._overrides.get(topic, {}))

    def describe_new_topic(self, overrides: Mapping[str, str]) -> list[ConfigRow]:
        """Every setting that a topic with these of its own would have."""
        return self.effective.describe_topic(overrides)

    def describe_broker(self, *, cluster_wide: bool) -> list[ConfigRow]:
        """Every setting of this broker; or only those that are set for all brokers together."""
        return self.effective.describe_default_broker() if cluster_wide else self.effective.describe_broker()

    # --- what may be changed -----------------------------------------------------------------------------------------

    def check_topic(self, overrides: Mapping[str, str]) -> None:
        """:raise KafkaError: INVALID_CONFIG, naming the setting, its value and what is allowed."""
        validate_topic_config(overrides, self.effective.topic_defaults)

    def check_broker(self, settings: Mapping[str, str], *, cluster_wide: bool) -> None:
        """:raise KafkaError: INVALID_CONFIG, or INVALID_REQUEST for a setting that cannot change so."""
        validate_broker_config(settings, cluster_wide=cluster_wide)

    def alter_topic(self, current: Mapping[str, str], operations: Sequence[Operation]) -> dict[str, str]:
        """A topic's overrides after some operations, not yet checked.

        :raise KafkaError: INVALID_REQUEST or INVALID_CONFIG for an operation that cannot be done.
        """
        return alter_incrementally(current, operations, TOPIC_SETTINGS)

    def alter_broker(self, current: Mapping[str, str], operations: Sequence[Operation]) -> dict[str, str]:
        """As ``alter_topic``, for the dynamic settings of brokers."""
        return alter_incrementally(current, operations, BROKER_SETTINGS)
