"""Handles ``/admin/reassign_partitions``, which older Kafka tools write, and removes finished reassignments from it."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.event_types import ReassignmentsRequested
from kreplica.controller.handlers import reassignment
from kreplica.controller.term import ControllerTerm
from kreplica.zookeeper import NoNode

log = Logger()


async def reassignments_requested(term: ControllerTerm) -> None:
    """Start the new reassignments in the znode, and remove those that are finished or rejected.

    Rejections are logged with their reasons.
    """
    watch = term.watch(znodes.REASSIGN_PARTITIONS, ReassignmentsRequested())
    # exists also watches for the creation of the znode.
    await term.client.exists(znodes.REASSIGN_PARTITIONS, watch)
    context = term.context
    try:
        data, stat = await term.client.get_data(znodes.REASSIGN_PARTITIONS)
        targets = documents.decode_reassignments(data)
    except NoNode:
        context.reassignments_requested, context.reassignments_version = {}, -1
        return
    except znodes.ZnodeError as error:
        log.error("controller: removing an unreadable request: {error}", error=str(error))
        targets = {}
    # Known requests are not started again: they may have been changed or cancelled by RPC since.
    new = {p: target for p, target in targets.items() if context.reassignments_requested.get(p) != target}
    context.reassignments_requested, context.reassignments_version = targets, stat.version
    for partition, rejection in (await reassignment.reassign(term, new)).items():
        if rejection is not None:
            log.warn(
                "controller: {partition} is not reassigned: {error}", partition=str(partition), error=str(rejection)
            )
    await _remove_finished(term)


async def _remove_finished(term: ControllerTerm) -> None:
    """Keep only ongoing reassignments in the znode; remove the znode if none is left."""
    context = term.context
    moving = set(reassignment.reassigned_partitions(context, context.reassignments_requested))
    ongoing = {
        partition: target
        for partition, target in context.reassignments_requested.items()
        if partition in moving and reassignment.placement(context, partition).target == target
    }
    if ongoing and ongoing == context.reassignments_requested:
        return
    data = documents.encode_reassignments(ongoing) if ongoing else None
    if await term.writes.rewrite_request(znodes.REASSIGN_PARTITIONS, data, context.reassignments_version):
        context.reassignments_requested = ongoing
        context.reassignments_version = context.reassignments_version + 1 if ongoing else -1
    else:
        term.put(ReassignmentsRequested())  # concurrent write: read it again
