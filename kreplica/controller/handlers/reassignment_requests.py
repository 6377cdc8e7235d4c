"""``/admin/reassign_partitions``, as Kafka's older tools ask: begun as by RPC, crossed out as they finish."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.event_types import ReassignmentsRequested
from kreplica.controller.handlers import reassignment
from kreplica.controller.term import Office
from kreplica.zookeeper import NoNode

log = Logger()


async def reassignments_requested(office: Office) -> None:
    """The znode was written, or what it asks for has finished: begin what is new in it, cross out what is done.

    What cannot be done is crossed out too, and the log keeps why.
    """
    watch = office.watch(znodes.REASSIGN_PARTITIONS, ReassignmentsRequested())
    # The watch of exists also sees it come.
    await office.client.exists(znodes.REASSIGN_PARTITIONS, watch)
    context = office.context
    try:
        data, stat = await office.client.get_data(znodes.REASSIGN_PARTITIONS)
        targets = documents.decode_reassignments(data)
    except NoNode:
        context.reassignments_requested, context.reassignments_version = {}, -1
        return
    except znodes.ZnodeError as error:
        log.error("controller: reassignments that cannot be read are dropped: {error}", error=str(error))
        targets = {}
    # What was begun already is not begun again: an administrator may have moved or cancelled it since.
    new = {p: target for p, target in targets.items() if context.reassignments_requested.get(p) != target}
    context.reassignments_requested, context.reassignments_version = targets, stat.version
    for partition, refused in (await reassignment.reassign(office, new)).items():
        if refused is not None:
            log.warn("controller: {partition} is not reassigned: {error}", partition=str(partition), error=str(refused))
    await _cross_out_finished(office)


async def _cross_out_finished(office: Office) -> None:
    """Leave in the znode only what still goes on; the last one takes the znode with it."""
    context = office.context
    moving = set(reassignment.moving(context, context.reassignments_requested))
    rest = {
        partition: target
        for partition, target in context.reassignments_requested.items()
        if partition in moving and reassignment.placement(context, partition).target == target
    }
    if rest and rest == context.reassignments_requested:
        return
    data = documents.encode_reassignments(rest) if rest else None
    if await office.writes.rewrite_request(znodes.REASSIGN_PARTITIONS, data, context.reassignments_version):
        context.reassignments_requested = rest
        context.reassignments_version = context.reassignments_version + 1 if rest else -1
    else:
        office.put(ReassignmentsRequested())  # somebody else wrote it: look again
