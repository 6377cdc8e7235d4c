"""Batches that a driver numbers itself, and the position at which it resumes after a restart.

Spark's streams have a checkpoint for this; a sequence uses committed offsets of the group ``<sink ID>-settled``. These
offsets mark the last batch that is decided and committed in every lane. Without this mark, a task of the next batch
could reuse a lane whose transaction is decided but not committed yet.
"""

from __future__ import annotations

from kreplica.blocking import Cluster
from kreplica.blocking.offsets import commit_offsets, committed_offsets
from kreplica.model import TopicPartition
from kreplica.spark.sink.decision_store import METADATA_SIZE_MAX, create_decisions_topic, read_decision
from kreplica.spark.sink.exactly_once import commit_lanes, fence_deciders
from kreplica.spark.sink.options import DECISIONS_TOPIC
from kreplica.spark.sink.write_decision import NONE_DECIDED


class SinkIdInUse(ValueError):
    """The sink ID is already used for other batches."""


class BatchSequence:
    """The batches of one sink, driven by a process that writes with ``kreplica.exactly.once=many``.

    :param description: one-line description of the batches; must be the same after a restart.
    """

    def __init__(
        self, cluster: Cluster, sink_id: str, description: str, *, decisions_topic: str = DECISIONS_TOPIC
    ) -> None:
        if len(description) > METADATA_SIZE_MAX:
            limit = METADATA_SIZE_MAX
            raise ValueError(f"the description of {sink_id} has {len(description)} characters; the maximum is {limit}")
        self._cluster, self._sink_id, self._description = cluster, sink_id, description
        self._group, self._topic = f"{sink_id}-settled", decisions_topic

    def last_decided(self) -> int:
        """Return the number of the last decided batch (-1 for none), without changing anything.

        :raise SinkIdInUse: the sink ID is used for other batches.
        """
        self._cluster.retrying(lambda: self._cluster.refresh((self._topic,)))
        if self._topic not in self._cluster.view.topics:
            return NONE_DECIDED
        self._settled()
        decision = read_decision(self._cluster, self._topic, self._sink_id)
        return NONE_DECIDED if decision is None else decision.batch_id

    def begin(self) -> int:
        """Fence earlier drivers, commit the last decided batch, and return its number (-1 for none).

        :raise SinkIdInUse: see ``last_decided``.
        :raise RowsLost: the decided transactions can no longer be committed.
        """
        create_decisions_topic(self._cluster, self._topic)
        settled = self._settled()
        fence_deciders(self._cluster, self._sink_id)
        decision = read_decision(self._cluster, self._topic, self._sink_id)
        if decision is None:
            self.mark_settled(NONE_DECIDED)
            return NONE_DECIDED
        if settled < decision.batch_id:
            if not decision.is_settled:
                commit_lanes(self._cluster, self._sink_id, decision)
            self.mark_settled(decision.batch_id)
        return decision.batch_id

    def mark_decided_settled(self) -> int:
        """Mark the last decided batch as committed, after its write succeeded.

        :return: number of the last decided batch; that of an earlier batch if the last one had no tasks and thus no
            decision.
        """
        decision = read_decision(self._cluster, self._topic, self._sink_id)
        decided = NONE_DECIDED if decision is None else decision.batch_id
        self.mark_settled(decided)
        return decided

    def mark_settled(self, batch_id: int) -> None:
        """Mark a batch as committed, before the next one starts."""
        commit_offsets(self._cluster, self._group, {TopicPartition(self._topic, 0): batch_id + 1}, self._description)

    def _settled(self) -> int:
        committed = committed_offsets(self._cluster, self._group, (self._topic,)).get(TopicPartition(self._topic, 0))
        if committed is None or committed.offset < 0:
            return NONE_DECIDED
        if committed.metadata != self._description:
            raise SinkIdInUse(
                f"{self._sink_id} is already used for {committed.metadata or 'other batches'}, "
                f"not for {self._description}: use another name"
            )
        return committed.offset - 1
