"""Batches that a driver numbers itself, one after the other: where they are, when it begins again.

Spark's streams have a checkpoint for that; this has offsets of one more group.  A mark there says which batch is
decided and committed in every lane, so that lanes which the next batch's tasks have taken over are not missed.
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
    """A sink of that name was begun for something else."""


class BatchSequence:
    """The batches of one sink, from the driver that writes them with ``kreplica.exactly.once=many``.

    :param about: what they are, in a line: who begins again has to mean the same.
    """

    def __init__(self, cluster: Cluster, sink_id: str, about: str, *, decisions_topic: str = DECISIONS_TOPIC) -> None:
        if len(about) > METADATA_SIZE_MAX:
            raise ValueError(f"{len(about)} characters say what {sink_id} is; {METADATA_SIZE_MAX} are the most")
        self._cluster, self._sink_id, self._about = cluster, sink_id, about
        self._group, self._topic = f"{sink_id}-settled", decisions_topic

    def decided(self) -> int:
        """The number of the last batch that is decided, -1 where none is; nothing is changed.

        :raise OtherBatches: the sink was begun for something else.
        """
        self._cluster.retrying(lambda: self._cluster.refresh((self._topic,)))
        if self._topic not in self._cluster.view.topics:
            return NONE_DECIDED
        self._settled()
        decision = read_decision(self._cluster, self._topic, self._sink_id)
        return NONE_DECIDED if decision is None else decision.batch_id

    def begin(self) -> int:
        """The same, once nobody who began earlier can decide any more, and what was decided is committed.

        :raise OtherBatches: as ``decided``.
        :raise RowsLost: what was decided cannot be committed any more.
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
        """Note that the last batch that is decided is committed: its writing has ended well.

        :return: its number; that of an earlier one where the last had no task, and so nobody to decide it.
        """
        decision = read_decision(self._cluster, self._topic, self._sink_id)
        decided = NONE_DECIDED if decision is None else decision.batch_id
        self.settle(decided)
        return decided

    def settle(self, batch_id: int) -> None:
        """Note that a batch is committed, before the next one is begun."""
        commit_offsets(self._cluster, self._group, {TopicPartition(self._topic, 0): batch_id + 1}, self._about)

    def _settled(self) -> int:
        found = committed_offsets(self._cluster, self._group, (self._topic,)).get(TopicPartition(self._topic, 0))
        if found is None or found.offset < 0:
            return NONE_DECIDED
        if found.metadata != self._about:
            raise OtherBatches(
                f"{self._sink_id} was begun as {found.metadata or 'something else'}, and is now {self._about}: "
                "give what is new a name of its own"
            )
        return found.offset - 1
