"""Batches that a driver numbers itself, and the position at which it resumes after a restart.

Spark's streams use a checkpoint for this; a sequence uses committed offsets of one more group. Its mark names the last
batch that is decided and committed in every lane. Without the mark, a lane taken over by a task of the next batch could
remain uncommitted.
"""

from __future__ import annotations

from kreplica.blocking import Cluster
from kreplica.blocking.offsets import commit_offsets, committed_offsets
from kreplica.model import TopicPartition
from kreplica.spark.sink.decision_store import METADATA_SIZE_MAX, make_topic, read_decision
from kreplica.spark.sink.exactly_once import commit_lanes, take_over
from kreplica.spark.sink.options import DECISIONS_TOPIC
from kreplica.spark.sink.write_decision import NONE_DECIDED


class OtherBatches(ValueError):
    """The sink's name is already used for other batches."""


class BatchSequence:
    """The batches of one sink, driven by a process that writes with ``kreplica.exactly.once=many``.

    :param about: one-line description of the batches; must be the same after a restart.
    """

    def __init__(self, cluster: Cluster, sink_id: str, about: str, *, decisions_topic: str = DECISIONS_TOPIC) -> None:
        if len(about) > METADATA_SIZE_MAX:
            raise ValueError(f"{len(about)} characters say what {sink_id} is; {METADATA_SIZE_MAX} are the most")
        self._cluster, self._sink_id, self._about = cluster, sink_id, about
        self._group, self._topic = f"{sink_id}-settled", decisions_topic

    def decided(self) -> int:
        """Return the number of the last decided batch, -1 for none; changes nothing.

        :raise OtherBatches: the sink's name is used for other batches.
        """
        self._cluster.retrying(lambda: self._cluster.refresh((self._topic,)))
        if self._topic not in self._cluster.view.topics:
            return NONE_DECIDED
        self._settled()
        decision = read_decision(self._cluster, self._topic, self._sink_id)
        return NONE_DECIDED if decision is None else decision.batch_id

    def begin(self) -> int:
        """Fence earlier drivers, commit the last decided batch, and return its number, -1 for none.

        :raise OtherBatches: as ``decided``.
        :raise RowsLost: the decided transactions can no longer be committed.
        """
        make_topic(self._cluster, self._topic)
        settled = self._settled()
        take_over(self._cluster, self._sink_id)
        decision = read_decision(self._cluster, self._topic, self._sink_id)
        if decision is None:
            self.settle(NONE_DECIDED)
            return NONE_DECIDED
        if settled < decision.batch_id:
            if not decision.is_settled:
                commit_lanes(self._cluster, self._sink_id, decision)
            self.settle(decision.batch_id)
        return decision.batch_id

    def settle_decided(self) -> int:
        """Mark the last decided batch as committed, after its write succeeded.

        :return: number of the last decided batch; an earlier one if the last batch had no task and therefore no
            decision.
        """
        decision = read_decision(self._cluster, self._topic, self._sink_id)
        decided = NONE_DECIDED if decision is None else decision.batch_id
        self.settle(decided)
        return decided

    def settle(self, batch_id: int) -> None:
        """Mark a batch as committed, before the next one starts."""
        commit_offsets(self._cluster, self._group, {TopicPartition(self._topic, 0): batch_id + 1}, self._about)

    def _settled(self) -> int:
        found = committed_offsets(self._cluster, self._group, (self._topic,)).get(TopicPartition(self._topic, 0))
        if found is None or found.offset < 0:
            return NONE_DECIDED
        if found.metadata != self._about:
            raise OtherBatches(
                f"{self._sink_id} was begun as {found.metadata or 'something else'}, and is now {self._about}: "
                "use another name"
            )
        return found.offset - 1
