"""Writes changes of in-sync sets to the state znodes: every write conditional, many at a time, one batch under way.

A leader writes on the strength of what it knows: the version of the znode, and which incarnations of its followers
fetched.  Both are looked at by the write itself, or just before it.  While it is not known what became of a write both
in-sync sets count, and nothing else is written for that partition until the znode was read again.  What ZooKeeper
refuses for another reason than a conflict is a partition's own affair: it is put off, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication.leader import in_sync
from kreplica.replication.leader.isr_notifications import IsrNotifications
from kreplica.replication.leader.isr_proposal import Proposal
from kreplica.replication.leader.leader_state import Led
from kreplica.replication.retries import Retries
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.runtime.together import together
from kreplica.zookeeper import BadVersion, ConnectionLoss, NoNode, SetData, Stat, ZooKeeperError, read_all, write_units
from kreplica.zookeeper.batches import MultiReader, MultiWriter

log = Logger()

BATCH_MAX = 1000
"""Partitions in one batch: what can be made ready without keeping the reactor for long."""

RETRY_SECONDS = 1.0
"""After ZooKeeper could not be reached, or refused what was asked for."""

Batch = dict[Led, Proposal]
Refused = list[tuple[Led, Proposal, Exception]]

TOLD_MAX = 5
"""Changes of one batch that are a line of the log each."""


class States(MultiReader, MultiWriter, Protocol):
    """The part of the ZooKeeper client that is used here."""

    def sync(self, path: str = "/") -> Deferred[str]: ...


class IsrWrites:
    """Owned by the broker; lives as long as it does, over any number of sessions.

    :ivar expands: in-sync sets that were written with somebody new; ``shrinks`` those without somebody.
    :ivar conflicts: writes that found another version than they knew of: the znode's was adopted (KAFKA-2729).
    :ivar unknown_outcomes: writes of which nobody could say whether they were done.
    :ivar refused_writes: writes that were no conflict, and still could not be done (no rights on the znode).
    :ivar refused_joins: followers of which another incarnation is registered, or none (KIP-903).
    """

    def __init__(self, reactor: Reactor, client: States, notifications: IsrNotifications) -> None:
        self.expands = self.shrinks = self.conflicts = self.unknown_outcomes = 0
        self.refused_writes = self.refused_joins = 0
        self._reactor = reactor
        self._client = client
        self._notifications = notifications
        self._wanted: dict[Led, None] = {}
        self._unknown: Batch = {}
        """Both in-sync sets count, and the znode is to be read."""
        self._put_off: Batch = {}
        """The same, and not before ``RETRY_SECONDS`` have passed."""
        self._retries = Retries(reactor, self._put_off_is_due)
        self._gone: dict[int, int] = {}
        """By broker: it had another epoch than this one when its registration was read; no epoch comes back."""
        self._working: Deferred[None] | None = None
        self._stopped = False

    def propose(self, led: Led) -> None:
        """The in-sync set of a partition may have to change: whether it has is asked when its turn comes."""
        self._wanted[led] = None
        self._go_on()

    def stop(self) -> None:
        """Write nothing more; what is under way may be written all the same."""
        self._stopped = True
        self._retries.clear()
        if self._working is not None:
            self._working.cancel()

    def _go_on(self) -> None:
        if self._working is None and not self._stopped:
            self._working = Deferred.fromCoroutine(self._work())
            self._working.addErrback(lambda failure: log.failure("in-sync sets are written no more", failure))

    async def _work(self) -> None:
        try:
            while self._wanted or self._unknown:
                # All that this turn of the reactor brings goes into one batch.
                await pause(self._reactor, 0)
                try:
                    if self._unknown:
                        await self._find_out()
                    await self._write_next()
                except CancelledError:
                    raise
                except ZooKeeperError as error:
                    log.warn("in-sync sets wait for ZooKeeper: {error}", error=str(error))
                    await pause(self._reactor, RETRY_SECONDS)
                except Exception:
                    log.failure("in-sync sets could not be written, and are read again")
                    await pause(self._reactor, RETRY_SECONDS)
        except CancelledError:
            pass
        finally:
            self._working = None

    async def _write_next(self) -> None:
        batch: Batch = {}
        try:
            self._begin(batch)
            await self._write(await self._checked(batch))
        except CancelledError:
            raise
        except Exception:
            # However far it had come: those that still wait for an outcome have to find it out.
            self._unknown.update((led, proposal) for led, proposal in batch.items() if led.proposed is proposal)
            raise

    def _begin(self, batch: Batch) -> None:
        for led in list(islice(self._wanted, BATCH_MAX)):
            del self._wanted[led]
            if led in self._put_off:
                continue  # it is wanted again when it has been read
            if led.proposed is not None and not led.is_over:
                self._unknown[led] = led.proposed  # from an earlier tenure, or a state that was not read yet
            proposal = led.proposal(self._gone)
            if proposal is not None:
                batch[led] = proposal
                led.write_begins(proposal)

    # --- what has to wait --------------------------------------------------------------------------------------------

    def _wait_with(self, refused: Refused) -> None:
        """Leave some partitions alone for a while; until they were read again both in-sync sets count."""
        if not refused:
            return
        first, _, error = refused[0]
        log.warn(
            "{count} in-sync sets wait after an error, {partition} for one: {error}",
            count=len(refused),
            partition=str(first.partition.topic_partition),
            error=str(error),
        )
        for led, proposal, _ in refused:
            self._put_off[led] = proposal
            self._retries.add(led, RETRY_SECONDS)

    def _put_off_is_due(self, due: list[Led]) -> None:
        for led in due:
            self._unknown[led] = self._put_off.pop(led)
        self._go_on()

    # --- who may join ------------------------------------------------------------------------------------------------

    async def _checked(self, batch: Batch) -> Batch:
        """The batch without those that would let in a broker which is down, or is not the one that fetched.

        :raise ZooKeeperError: the registrations cannot be read; nothing was written, and all are tried again.
        """
        joining = sorted({replica for proposal in batch.values() for replica, _ in proposal.joining})
        if not joining:
            return batch
        try:
            registered = await self._registered_epochs(joining)
        except (ZooKeeperError, CancelledError):
            self._take_back(batch)
            raise
        refused: Batch = {}
        for led, proposal in batch.items():
            for replica, broker_epoch in proposal.joining:
                if not in_sync.is_current_incarnation(broker_epoch, registered[replica]):
                    self.refused_joins += 1
                    self._gone[replica] = max(broker_epoch, self._gone.get(replica, NO_BROKER_EPOCH))
                    refused[led] = proposal
        self._take_back(refused)
        return {led: proposal for led, proposal in batch.items() if led not in refused}

    def _take_back(self, batch: Batch) -> None:
        for led, proposal in batch.items():
            led.not_written(proposal)
            self._wanted[led] = None

    async def _registered_epochs(self, brokers: list[int]) -> dict[int, int | None]:
        found = await self._read(map(znodes.broker_path, brokers))
        return {
            broker: None if isinstance(answer, ZooKeeperError) else answer[1].czxid
            for broker, answer in zip(brokers, found, strict=True)
        }

    async def _read(self, paths: Iterable[str]) -> list[tuple[bytes, Stat] | ZooKeeperError]:
        """What the znodes hold after everything that was written before this was called."""
        # Sent one right behind the other: the server reads after it has synced.
        _, found = await together([self._sync(), read_all(self._client, list(paths))])
        return found or []

    async def _sync(self) -> None:
        await self._client.sync()

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _write(self, batch: Batch) -> None:
        if not batch:
            return
        units = [
            [
                SetData(
                    _path(led),
                    documents.encode_partition_state(proposal.state),
                    in_sync.expected_version(proposal.base.partition_epoch),
                )
            ]
            for led, proposal in batch.items()
        ]
        outcomes = await write_units(self._client, units)
        written: list[tuple[Led, Proposal]] = []
        refused: Refused = []
        for (led, proposal), outcome in zip(batch.items(), outcomes, strict=True):
            if isinstance(outcome, NoNode):
                led.not_written(proposal)  # the topic is deleted
            elif isinstance(outcome, BadVersion):
                self.conflicts += 1
                self._unknown[led] = proposal
            elif isinstance(outcome, ConnectionLoss):
                self.unknown_outcomes += 1
                self._unknown[led] = proposal
            elif isinstance(outcome, ZooKeeperError):
                self.refused_writes += 1
                refused.append((led, proposal, outcome))
            else:
                (stat,) = outcome
                assert isinstance(stat, Stat)
                if led.written(proposal, stat.version):
                    self._was_written(led, proposal)
                    written.append((led, proposal))
        _tell(written)
        self._wait_with(refused)

    def _was_written(self, led: Led, proposal: Proposal) -> None:
        self.expands += bool(proposal.joining)
        self.shrinks += any(replica not in proposal.isr for replica in proposal.base.isr)
        self._notifications.add(led.partition.topic_partition)
        # What happened meanwhile may change it again.
        self._wanted[led] = None

    async def _find_out(self) -> None:
        """Read the state znodes that are not as they were thought to be.

        A write that was under way when the connection was lost is in what is read now, or never will be: ZooKeeper does
        nothing more for a connection whose session has moved to another, or has ended, and ``sync`` waits for the rest.

        :raise ZooKeeperError: nothing can be read.
        """
        batch = dict(islice(self._unknown.items(), BATCH_MAX))
        found = await self._read(map(_path, batch))
        refused: Refused = []
        for (led, proposal), answer in zip(batch.items(), found, strict=True):
            del self._unknown[led]
            if isinstance(answer, ZooKeeperError) and not isinstance(answer, NoNode):
                refused.append((led, proposal, answer))
                continue
            try:
                self._resolve(led, proposal, answer)
            except Exception as error:
                log.failure("what became of an in-sync set cannot be said")
                refused.append((led, proposal, error))
        self._wait_with(refused)

    def _resolve(self, led: Led, proposal: Proposal, answer: tuple[bytes, Stat] | ZooKeeperError) -> None:
        if isinstance(answer, ZooKeeperError):
            led.not_written(proposal)  # the topic is deleted
            return
        data, stat = answer
        try:
            state = documents.decode_partition_state(_path(led), data, stat.version)
        except znodes.ZnodeError as error:
            log.error("a partition is led no more: {error}", error=str(error))
            led.partition.stop()
            return
        led.was_read(proposal, state)
        if state.isr == proposal.isr:
            self._notifications.add(led.partition.topic_partition)
        self._wanted[led] = None


def _path(led: Led) -> str:
    topic, number = led.partition.topic_partition
    return znodes.partition_state_path(topic, number)


def _tell(written: list[tuple[Led, Proposal]]) -> None:
    """A line for each change; where a broker went or came back, thousands of them are one line."""
    for led, proposal in written[:TOLD_MAX]:
        log.info(
            "{partition}: in sync are {isr}, were {before}",
            partition=str(led.partition.topic_partition),
            isr=proposal.isr,
            before=proposal.base.isr,
        )
    if len(written) > TOLD_MAX:
        log.info("and so for {count} more partitions", count=len(written) - TOLD_MAX)
