"""The rules of the coordinators of groups and of transactions, each with what it would be like without."""

from __future__ import annotations

from kreplica.coordination import Shards
from kreplica.replication import Partition
from kreplica.transactions.admission import Admission, Producer
from tests.support.mutations.guard import Guard, Place, always, never, nothing
from tests.support.mutations.scenarios import consumer_groups, groups, transactions


def _unasked(admission: Admission, partition: Partition, producer: Producer, adds: bool) -> bool:
    known = partition.log.producers.verifications
    known.begin(producer.producer_id, producer.producer_epoch, starts_at_zero=adds).is_verified = True
    return True


COORDINATOR_GUARDS: tuple[Guard, ...] = (
    # --- groups ---
    Guard(
        "generation of a commit",
        (Place("kreplica.groups.classic.fencing:is_current_generation", always),),
        groups.commits_late,
        "generation 1 has committed in 2",
    ),
    Guard(
        "static members that were replaced",
        (Place("kreplica.groups.classic.fencing:holds_instance", always),),
        groups.was_replaced_under_its_instance_id,
        "two processes are one static member",
    ),
    Guard(
        "who is no member commits nothing",
        (Place("kreplica.groups.classic.group:ClassicGroup.check_commit", nothing),),
        groups.goes_on_after_its_session,
        "made twice",
    ),
    Guard(
        "offsets wait for the end of their transaction",
        (Place("kreplica.groups.offsets:Offsets.is_unstable", never),),
        groups.asks_before_the_marker_has_come,
        "was committed up to",
    ),
    Guard(
        "a coordinator serves what is committed",
        (Place("kreplica.coordination.shards:is_settled", always),),
        groups.leads_with_what_is_not_committed,
        "was committed up to",
    ),
    Guard(
        "lease of a coordinator",
        (Place("kreplica.coordination.shards:Shards.current_shard_of", Shards.shard_of),),
        groups.is_heard_by_clients_alone,
        "was committed up to",
    ),
    Guard(
        "given up before it is given",
        (Place("kreplica.groups.consumer.fencing:has_given_up", always),),
        consumer_groups.gives_up_slowly,
        "is owned by two",
    ),
    Guard(
        "free before it is given",
        (Place("kreplica.groups.consumer.fencing:is_free", always),),
        consumer_groups.is_asked_for_at_once,
        "is owned by two",
    ),
    Guard(
        "member epoch of a commit",
        (Place("kreplica.groups.consumer.fencing:is_epoch_of_commit", always),),
        consumer_groups.commits_what_was_given_away,
        "took back what was committed",
    ),
    # --- transactions ---
    Guard(
        "fenced producers",
        (Place("kreplica.transactions.fencing:is_current", always),),
        transactions.has_been_replaced,
        "was fenced, and its producer was told that it is committed",
    ),
    Guard(
        "repeated end of a transaction",
        (Place("kreplica.transactions.fencing:is_repeated_end", never),),
        transactions.does_not_hear_that_it_committed,
        "nobody else has come",
    ),
    Guard(
        "repeated request for an epoch",
        (Place("kreplica.transactions.fencing:is_repeated_bump", never),),
        transactions.does_not_hear_of_its_epoch,
        "nobody else has come",
    ),
    Guard(
        "coordinator epoch of a marker",
        (Place("kreplica.storage.producers.producer_state:is_replaced_coordinator", never),),
        transactions.is_ended_by_a_coordinator_of_the_past,
        "aborted read",
    ),
    Guard(
        "producer epoch of a marker",
        (Place("kreplica.storage.producers.transaction_verification:is_late_marker", never),),
        transactions.is_ended_twice,
        "aborted read",
    ),
    Guard(
        "verification of a transaction",
        (Place("kreplica.transactions.admission:Admission._is_open", _unasked),),
        transactions.writes_late,
        "decided by nobody",
    ),
    Guard(
        "an end marker takes a verification back",
        (Place("kreplica.storage.producers.transaction_verification:may_begin", always),),
        transactions.writes_what_was_verified_late,
        "decided by nobody",
    ),
    Guard(
        "producer epoch of a batch",
        (
            Place("kreplica.storage.producers.producer_state:is_old_epoch", never),
            Place("kreplica.transactions.admission:Admission._is_open", _unasked),
        ),
        transactions.writes_after_it_was_replaced,
        "decided by nobody",
        "the coordinator, which is asked, says the same",
    ),
    Guard(
        "transactions that take too long are aborted",
        (Place("kreplica.transactions.shard:Entry.has_timed_out", never),),
        transactions.is_heard_of_no_more,
        "decided by nobody",
    ),
    Guard(
        "last stable offset",
        (Place("kreplica.storage.producers.producer_state:ProducerStates.first_unstable_offset", nothing),),
        transactions.is_not_committed,
        "precommitted read",
    ),
    Guard(
        "readers are told what is aborted",
        (Place("kreplica.server.fetch.partition_reads:_aborted", lambda *_: []),),
        transactions.is_not_committed,
        "aborted read",
    ),
)
"""In the order in which a page and a score show them."""
