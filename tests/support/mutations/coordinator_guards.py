"""Guards of the group and transaction coordinators, each with its mutant."""

from __future__ import annotations

from kreplica.coordination import Shards
from kreplica.replication import Partition
from kreplica.transactions.admission import Admission, Producer
from tests.support.mutations.guard import Guard, Place, always, never, nothing
from tests.support.mutations.scenarios import consumer_groups, groups, transactions


def _unverified(admission: Admission, partition: Partition, producer: Producer, adds: bool) -> bool:
    known = partition.log.producers.verifications
    known.begin(producer.producer_id, producer.producer_epoch, starts_at_zero=adds).is_verified = True
    return True


COORDINATOR_GUARDS: tuple[Guard, ...] = (
    # --- groups ---
    Guard(
        "a commit with an old generation is rejected",
        (Place("kreplica.groups.classic.fencing:is_current_generation", always),),
        groups.commit_of_previous_generation,
        "generation 1 committed during 2",
    ),
    Guard(
        "replaced static members are fenced",
        (Place("kreplica.groups.classic.fencing:holds_instance", always),),
        groups.replaced_static_member,
        "two processes are one static member",
    ),
    Guard(
        "only members may commit",
        (Place("kreplica.groups.classic.group:ClassicGroup.check_commit", nothing),),
        groups.commit_after_session_timeout,
        "processed twice",
    ),
    Guard(
        "offsets are pending until their transaction ends",
        (Place("kreplica.groups.offsets:Offsets.is_unstable", never),),
        groups.offset_fetch_before_marker,
        "was committed up to",
    ),
    Guard(
        "a coordinator serves only committed offsets",
        (Place("kreplica.coordination.shards:is_settled", always),),
        groups.coordinator_with_uncommitted_offsets,
        "was committed up to",
    ),
    Guard(
        "a coordinator returns offsets only while it has a lease",
        (Place("kreplica.coordination.shards:Shards.current_shard_of", Shards.shard_of),),
        groups.coordinator_without_zookeeper,
        "was committed up to",
    ),
    Guard(
        "a partition is released only after its owner has revoked it",
        (Place("kreplica.groups.consumer.fencing:has_revoked", always),),
        consumer_groups.slow_revocation,
        "is owned by two",
    ),
    Guard(
        "a partition is assigned only after it is released",
        (Place("kreplica.groups.consumer.fencing:is_free", always),),
        consumer_groups.assignment_before_revocation,
        "is owned by two",
    ),
    Guard(
        "a commit with an old member epoch is rejected",
        (Place("kreplica.groups.consumer.fencing:is_epoch_of_commit", always),),
        consumer_groups.commit_after_revocation,
        "a late commit overwrote a newer one",
    ),
    # --- transactions ---
    Guard(
        "fenced producers are rejected",
        (Place("kreplica.transactions.fencing:is_current", always),),
        transactions.fenced_producer_commits,
        "was fenced, but its commit was confirmed",
    ),
    Guard(
        "a retried end of a transaction is recognized",
        (Place("kreplica.transactions.fencing:is_repeated_end", never),),
        transactions.lost_commit_response,
        "no other producer has started",
    ),
    Guard(
        "a retried request for an epoch is recognized",
        (Place("kreplica.transactions.fencing:is_repeated_bump", never),),
        transactions.lost_epoch_response,
        "no other producer has started",
    ),
    Guard(
        "a marker from a replaced coordinator is rejected",
        (Place("kreplica.storage.producers.producer_state:is_replaced_coordinator", never),),
        transactions.marker_of_previous_coordinator,
        "aborted read",
    ),
    Guard(
        "a late marker is rejected by its producer epoch",
        (Place("kreplica.storage.producers.transaction_verification:is_late_marker", never),),
        transactions.repeated_marker,
        "aborted read",
    ),
    Guard(
        "a batch is accepted only if its transaction is open",
        (Place("kreplica.transactions.admission:Admission._is_open", _unverified),),
        transactions.write_after_abort,
        "undecided transaction",
    ),
    Guard(
        "an end marker cancels the verification",
        (Place("kreplica.storage.producers.transaction_verification:may_begin", always),),
        transactions.late_verification,
        "undecided transaction",
    ),
    Guard(
        "a batch with an old producer epoch is rejected",
        (
            Place("kreplica.storage.producers.producer_state:is_old_epoch", never),
            Place("kreplica.transactions.admission:Admission._is_open", _unverified),
        ),
        transactions.write_after_fencing,
        "undecided transaction",
        "the coordinator, which verifies the transaction, also checks the producer epoch",
    ),
    Guard(
        "transactions that exceed their timeout are aborted",
        (Place("kreplica.transactions.shard:Entry.has_timed_out", never),),
        transactions.producer_dies_in_transaction,
        "undecided transaction",
    ),
    Guard(
        "read_committed readers stop at the last stable offset",
        (Place("kreplica.storage.producers.producer_state:ProducerStates.first_unstable_offset", nothing),),
        transactions.aborted_between_committed,
        "precommitted read",
    ),
    Guard(
        "readers receive the list of aborted transactions",
        (Place("kreplica.server.fetch.partition_reads:_aborted_transactions", lambda *_: []),),
        transactions.aborted_between_committed,
        "aborted read",
    ),
)
"""The guards, in the order of the table in the documentation."""
