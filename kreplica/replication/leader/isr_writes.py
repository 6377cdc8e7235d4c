"""Writes ISR changes to the partition state znodes in conditional batches, one batch at a time.

A write depends on the znode's version and on the broker epochs of joining followers; both are checked with the write or
directly before it. While the outcome of a write is unknown, both the old and the new ISR count, and the partition is
not written again until its znode has been read. A partition whose write ZooKeeper rejects for a reason other than a
conflict is retried later without delaying the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication.leader import isr_membership
from kreplica.replication.leader.isr_notifications import IsrNotifications
from kreplica.replication.leader.isr_proposal import Proposal
from kreplica.replication.leader.leader_state import LeaderState
from kreplica.replication.retries import Retries
from kreplica.runtime import Reactor
from kreplica.runtime.gather import gather
from kreplica.runtime.pause import pause
from kreplica.zookeeper import BadVersion, ConnectionLoss, NoNode, SetData, Stat, ZooKeeperError, read_all, write_units
from kreplica.zookeeper.batches import MultiReader, MultiWriter

log = Logger()

BATCH_MAX = 1000
"""Maximum number of partitions in a batch, so that preparing it does not block the reactor."""

RETRY_SECONDS = 1.0
"""Delay before a retry after a ZooKeeper error."""

Batch = dict[LeaderState, Proposal]
Rejected = list[tuple[LeaderState, Proposal, Exception]]

LOGGED_MAX = 5
"""Maximum number of changes of one batch that are logged individually."""


class StateClient(MultiReader, MultiWriter, Protocol):
    """The operations of the ZooKeeper client used here."""

    def sync(self, path: str = "/") -> Deferred[str]: ...


class IsrWrites:
    """Writer of ISR changes; one per broker, across all of its ZooKeeper sessions.

    :ivar expands: number of writes that added a replica.
    :ivar shrinks: number of writes that removed a replica.
    :ivar conflicts: number of writes that failed with a version conflict; the znode's state was adopted (KAFKA-2729).
    :ivar unknown_outcomes: number of writes whose outcome was unknown at first.
    :ivar rejected_writes: number of writes that failed for another reason, such as missing permissions on the znode.
    :ivar rejected_joins: number of followers rejected because their broker epoch is not registered (KIP-903).
    """

    def __init__(self, reactor: Reactor, client: StateClient, notifications: IsrNotifications) -> None:
        self.expands = self.shrinks = self.conflicts = self.unknown_outcomes = 0
        self.rejected_writes = self.rejected_joins = 0
        self._reactor = reactor
        self._client = client
        self._notifications = notifications
        self._queued: dict[LeaderState, None] = {}
        self._unknown: Batch = {}
        """Writes whose outcome is unknown: both ISRs count, and the znode must be read."""
        self._postponed: Batch = {}
        """Writes whose outcome is unknown and whose znode is read after ``RETRY_SECONDS``."""
        self._retries = Retries(reactor, self._retry_postponed)
        self._unregistered_epochs: dict[int, int] = {}
        """Highest broker epoch of each broker found to be no longer registered. Epochs are never reused."""
        self._working: Deferred[None] | None = None
        self._stopped = False

    def propose(self, leader: LeaderState) -> None:
        """Queue a partition whose ISR may have to change; the change is computed when the batch starts."""
        self._queued[leader] = None
        self._start_working()

    def stop(self) -> None:
        """Stop writing; a pending write may still take effect."""
        self._stopped = True
        self._retries.clear()
        if self._working is not None:
            self._working.cancel()

    def _start_working(self) -> None:
        if self._working is None and not self._stopped:
            self._working = Deferred.fromCoroutine(self._work())
            self._working.addErrback(lambda failure: log.failure("ISR writes stopped", failure))

    async def _work(self) -> None:
        try:
            while self._queued or self._unknown:
                # Collect all proposals of this reactor iteration into one batch.
                await pause(self._reactor, 0)
                try:
                    if self._unknown:
                        await self._read_outcomes()
                    await self._write_next()
                except CancelledError:
                    raise
                except ZooKeeperError as error:
                    log.warn("ISR writes are delayed by a ZooKeeper error: {error}", error=str(error))
                    await pause(self._reactor, RETRY_SECONDS)
                except Exception:
                    log.failure("ISR writes failed; partition states are read again")
                    await pause(self._reactor, RETRY_SECONDS)
        except CancelledError:
            pass
        finally:
            self._working = None

    async def _write_next(self) -> None:
        batch: Batch = {}
        try:
            self._begin(batch)
            await self._write(await self._without_unregistered(batch))
        except CancelledError:
            raise
        except Exception:
            # The batch may have failed at any step; read the znode of each pending write.
            self._unknown.update((leader, sent) for leader, sent in batch.items() if leader.proposed is sent)
            raise

    def _begin(self, batch: Batch) -> None:
        for leader in list(islice(self._queued, BATCH_MAX)):
            del self._queued[leader]
            if leader in self._postponed:
                continue  # proposed again after its znode was read
            if leader.proposed is not None and not leader.is_over:
                self._unknown[leader] = leader.proposed  # pending since an earlier term as leader, or not read yet
            proposal = leader.proposal(self._unregistered_epochs)
            if proposal is not None:
                batch[leader] = proposal
                leader.write_started(proposal)

    # --- retries ------------------------------------------------------------------------------------------------------

    def _retry_later(self, rejected: Rejected) -> None:
        """Retry these partitions later; until then both ISRs count."""
        if not rejected:
            return
        first, _, error = rejected[0]
        log.warn(
            "{count} ISR writes failed and will be retried, for example {partition}: {error}",
            count=len(rejected),
            partition=str(first.partition.topic_partition),
            error=str(error),
        )
        for leader, proposal, _ in rejected:
            self._postponed[leader] = proposal
            self._retries.add(leader, RETRY_SECONDS)

    def _retry_postponed(self, due: list[LeaderState]) -> None:
        for leader in due:
            self._unknown[leader] = self._postponed.pop(leader)
        self._start_working()

    # --- joining replicas ---------------------------------------------------------------------------------------------

    async def _without_unregistered(self, batch: Batch) -> Batch:
        """Return the batch without proposals that add a broker whose registered epoch differs from the fetched one.

        :raise ZooKeeperError: the registrations cannot be read; nothing was written, and all proposals are retried.
        """
        joining = sorted({replica for proposal in batch.values() for replica, _ in proposal.joining})
        if not joining:
            return batch
        try:
            registered = await self._registered_epochs(joining)
        except (ZooKeeperError, CancelledError):
            self._requeue(batch)
            raise
        rejected: Batch = {}
        for leader, proposal in batch.items():
            for replica, broker_epoch in proposal.joining:
                if not isr_membership.is_current_incarnation(broker_epoch, registered[replica]):
                    self.rejected_joins += 1
                    known_epoch = self._unregistered_epochs.get(replica, NO_BROKER_EPOCH)
                    self._unregistered_epochs[replica] = max(broker_epoch, known_epoch)
                    rejected[leader] = proposal
        self._requeue(rejected)
        return {leader: proposal for leader, proposal in batch.items() if leader not in rejected}

    def _requeue(self, batch: Batch) -> None:
        for leader, proposal in batch.items():
            leader.not_written(proposal)
            self._queued[leader] = None

    async def _registered_epochs(self, brokers: list[int]) -> dict[int, int | None]:
        results = await self._read(map(znodes.broker_path, brokers))
        return {
            broker: None if isinstance(result, ZooKeeperError) else result[1].czxid
            for broker, result in zip(brokers, results, strict=True)
        }

    async def _read(self, paths: Iterable[str]) -> list[tuple[bytes, Stat] | ZooKeeperError]:
        """Read znodes after a sync, so that all earlier writes are visible."""
        # Both requests are sent without waiting in between; the server reads after it has synced.
        _, results = await gather([self._sync(), read_all(self._client, list(paths))])
        return results or []

    async def _sync(self) -> None:
        await self._client.sync()

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _write(self, batch: Batch) -> None:
        if not batch:
            return
        units = [
            [
                SetData(
                    _path(leader),
                    documents.encode_partition_state(proposal.state),
                    isr_membership.expected_version(proposal.base.partition_epoch),
                )
            ]
            for leader, proposal in batch.items()
        ]
        outcomes = await write_units(self._client, units)
        written: list[tuple[LeaderState, Proposal]] = []
        rejected: Rejected = []
        for (leader, proposal), outcome in zip(batch.items(), outcomes, strict=True):
            if isinstance(outcome, NoNode):
                leader.not_written(proposal)  # the topic is deleted
            elif isinstance(outcome, BadVersion):
                self.conflicts += 1
                self._unknown[leader] = proposal
            elif isinstance(outcome, ConnectionLoss):
                self.unknown_outcomes += 1
                self._unknown[leader] = proposal
            elif isinstance(outcome, ZooKeeperError):
                self.rejected_writes += 1
                rejected.append((leader, proposal, outcome))
            else:
                (stat,) = outcome
                assert isinstance(stat, Stat)
                if leader.written(proposal, stat.version):
                    self._was_written(leader, proposal)
                    written.append((leader, proposal))
        _log_changes(written)
        self._retry_later(rejected)

    def _was_written(self, leader: LeaderState, proposal: Proposal) -> None:
        self.expands += bool(proposal.joining)
        self.shrinks += any(replica not in proposal.isr for replica in proposal.base.isr)
        self._notifications.add(leader.partition.topic_partition)
        # Fetches and lag since the proposal may require another change.
        self._queued[leader] = None

    async def _read_outcomes(self) -> None:
        """Read the state znodes of writes with an unknown outcome.

        A write that was pending when the connection was lost is visible now or will never take effect: ZooKeeper does
        not apply requests of a connection whose session moved or ended, and ``sync`` waits for all others.

        :raise ZooKeeperError: the znodes cannot be read.
        """
        batch = dict(islice(self._unknown.items(), BATCH_MAX))
        found = await self._read(map(_path, batch))
        rejected: Rejected = []
        for (leader, proposal), result in zip(batch.items(), found, strict=True):
            del self._unknown[leader]
            if isinstance(result, ZooKeeperError) and not isinstance(result, NoNode):
                rejected.append((leader, proposal, result))
                continue
            try:
                self._resolve(leader, proposal, result)
            except Exception as error:
                key = leader.partition.topic_partition
                log.failure("the outcome of the ISR write of {partition} cannot be determined", partition=str(key))
                rejected.append((leader, proposal, error))
        self._retry_later(rejected)

    def _resolve(self, leader: LeaderState, proposal: Proposal, result: tuple[bytes, Stat] | ZooKeeperError) -> None:
        if isinstance(result, ZooKeeperError):
            leader.not_written(proposal)  # the topic is deleted
            return
        data, stat = result
        try:
            state = documents.decode_partition_state(_path(leader), data, stat.version)
        except znodes.ZnodeError as error:
            log.error(
                "{partition} is stopped, because its state znode is invalid: {error}",
                partition=str(leader.partition.topic_partition),
                error=str(error),
            )
            leader.partition.stop()
            return
        leader.state_read(proposal, state)
        if state.isr == proposal.isr:
            self._notifications.add(leader.partition.topic_partition)
        self._queued[leader] = None


def _path(leader: LeaderState) -> str:
    topic, number = leader.partition.topic_partition
    return znodes.partition_state_path(topic, number)


def _log_changes(written: list[tuple[LeaderState, Proposal]]) -> None:
    """Log each change, or a summary if a broker's failure or return changed many partitions."""
    for leader, proposal in written[:LOGGED_MAX]:
        log.info(
            "{partition}: ISR changed from {before} to {isr}",
            partition=str(leader.partition.topic_partition),
            isr=proposal.isr,
            before=proposal.base.isr,
        )
    if len(written) > LOGGED_MAX:
        log.info("ISR changed for {count} more partitions", count=len(written) - LOGGED_MAX)
