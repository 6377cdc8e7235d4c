"""Bodies of a follower's fetch requests, which mostly differ from the previous request only in numbers."""

from __future__ import annotations

from kreplica.model import NO_BROKER_EPOCH, TopicPartition
from kreplica.replication.follower.fetch_session import BY_ID_FROM, NextRequest, Row
from kreplica.replication.follower.fetcher_config import FetcherConfig
from kreplica.replication.follower.follower_state import FollowerState
from kreplica.wire.messages import FETCH
from kreplica.wire.template_cache import MARK, Template

TEMPLATES_MAX = 1000

_SESSION = ("session_id", "session_epoch")
_POSITION = ("fetch_offset", "last_fetched_epoch", "log_start_offset")
_CODES = "iiqiq"
"""Codes of the session's and the position's fields in wire order."""


class FetchRequests:
    """Builds the requests of one fetcher; a request with one partition is built from that partition's template.

    :param broker_id: the follower.
    """

    def __init__(self, broker_id: int, config: FetcherConfig) -> None:
        self._broker_id = broker_id
        self._config = config
        self._broker_epoch = NO_BROKER_EPOCH
        self._fields: Row = {}
        self._templates: dict[TopicPartition, tuple[FollowerState, int, Template]] = {}

    def forget(self, key: TopicPartition) -> None:
        """Drop the template of a partition that is no longer followed."""
        self._templates.pop(key, None)

    def build(self, version: int, broker_epoch: int, request: NextRequest[FollowerState]) -> bytes:
        """Return the body of a request.

        :param broker_epoch: epoch of the follower's registration, which the leader checks (KIP-903).
        """
        if broker_epoch != self._broker_epoch or not self._fields:
            self._broker_epoch = broker_epoch
            self._fields = self._common_fields()
            self._templates.clear()
        if len(request.partitions) != 1 or request.forgotten:
            fields = request.fields(by_id=version >= BY_ID_FROM)
            return FETCH.request.build(version, {**self._fields, **fields})
        (state,) = request.partitions
        owner, template_version, template = self._templates.get(state.key) or self._make_template(version, state)
        if owner is not state or template_version != version:
            _, _, template = self._make_template(version, state)
        return template.fill(request.session_id, request.session_epoch, *state.position())

    def _common_fields(self) -> Row:
        config = self._config
        return {
            "replica_id": self._broker_id,
            "replica_state": {"replica_id": self._broker_id, "replica_epoch": self._broker_epoch},
            "max_wait_ms": config.wait_ms_max,
            "min_bytes": config.bytes_min,
            "max_bytes": config.response_bytes_max,
            "isolation_level": 0,
            "rack_id": "",
        }

    def _make_template(self, version: int, state: FollowerState) -> tuple[FollowerState, int, Template]:
        fields = NextRequest(MARK, MARK + 1, [state], []).fields(by_id=version >= BY_ID_FROM)
        ((row,),) = (topic["partitions"] for topic in fields["topics"])
        row.update({name: MARK + number for number, name in enumerate(_POSITION, len(_SESSION))})
        template = Template(FETCH.request.build(version, {**self._fields, **fields}), _CODES)
        if len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        entry = self._templates[state.key] = (state, version, template)
        return entry
