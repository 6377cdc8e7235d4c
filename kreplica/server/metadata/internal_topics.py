"""Creates the internal topics of coordinators on first use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.cluster.new_topics import NewTopic
from kreplica.errors import ErrorCode, KafkaError
from kreplica.server.handlers.topics.topic_admin import TopicAdmin
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.zookeeper import ZooKeeperError

log = Logger()


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """Configuration of an internal topic."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class InternalTopics:
    """Creates the internal topics of a broker; at most one creation of a topic runs at a time."""

    def __init__(self, topics: TopicAdmin, metadata: MetadataCache, configs: Mapping[str, InternalTopic]) -> None:
        self._topics = topics
        self._metadata = metadata
        self._configs = configs
        self._creating: dict[str, Deferred[None]] = {}
        self._logged_reasons: dict[str, str] = {}

    def ensure(self, name: str) -> None:
        """Start creating an internal topic unless it exists; callers retry later."""
        if name in self._metadata.topics or name in self._creating:
            return
        creating = self._creating[name] = Deferred.fromCoroutine(self._create(self._configs[name]))
        creating.addErrback(lambda failure: self._failed(name, failure))
        if creating.called:
            self._creating.pop(name, None)

    async def _create(self, config: InternalTopic) -> None:
        try:
            await self._topics.create(
                NewTopic(config.name, config.partitions, config.replication_factor, configs=config.configs)
            )
            log.info("created the topic {name} with {count} partitions", name=config.name, count=config.partitions)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        finally:
            self._creating.pop(config.name, None)

    def _failed(self, name: str, failure: Failure) -> None:
        """Log the failure once per reason, because clients see only a retriable error."""
        if failure.check(CancelledError) is not None:
            return
        if failure.check(KafkaError, ZooKeeperError) is None:
            log.failure("creating the topic {name} failed", failure, name=name)
            return
        reason = failure.getErrorMessage()
        if self._logged_reasons.get(name) != reason:
            self._logged_reasons[name] = reason
            log.warn("cannot create the topic {name}, which clients need: {reason}", name=name, reason=reason)

    def stop(self) -> None:
        """Cancel all creations."""
        for creating in list(self._creating.values()):
            creating.cancel()
