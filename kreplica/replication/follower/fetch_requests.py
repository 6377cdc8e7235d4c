"""The bytes of a follower's fetches, most of which differ from the one before in numbers only."""

from __future__ import annotations

from kreplica.model import NO_BROKER_EPOCH, TopicPartition
from kreplica.replication.follower.fetch_session import BY_ID_FROM, NextRequest, Row
from kreplica.replication.follower.fetcher_config import FetcherConfig
from kreplica.replication.follower.follower_state import Followed
from kreplica.wire.forms import MARK, Form
from kreplica.wire.messages import FETCH

FORMS_MAX = 1000

_SESSION = ("session_id", "session_epoch")
_POSITION = ("fetch_offset", "last_fetched_epoch", "log_start_offset")
_CODES = "iiqiq"
"""Those of both, as they stand in a request."""


class FetchRequests:
    """What all requests of one fetcher have in common, and what those have that name one partition: a form for each.

    :param broker_id: the follower's.
    """

    def __init__(self, broker_id: int, config: FetcherConfig) -> None:
        self._broker_id = broker_id
        self._config = config
        self._broker_epoch = NO_BROKER_EPOCH
        self._fields: Row = {}
        self._forms: dict[TopicPartition, tuple[Followed, int, Form]] = {}

    def forget(self, key: TopicPartition) -> None:
        """It is followed no more."""
        self._forms.pop(key, None)

    def build(self, version: int, broker_epoch: int, request: NextRequest[Followed]) -> bytes:
        """The body of a request.

        :param broker_epoch: by which the leader knows this incarnation of the follower.
        """
        if broker_epoch != self._broker_epoch or not self._fields:
            self._broker_epoch = broker_epoch
            self._fields = self._common_fields()
            self._forms.clear()
        if len(request.named) != 1 or request.forgotten:
            fields = request.fields(by_id=version >= BY_ID_FROM)
            return FETCH.request.build(version, {**self._fields, **fields})
        (followed,) = request.named
        of, made_for, form = self._forms.get(followed.key) or self._make_form(version, followed)
        if of is not followed or made_for != version:
            _, _, form = self._make_form(version, followed)
        return form.filled(request.session_id, request.session_epoch, *followed.position())

    def _common_fields(self) -> Row:
        config = self._config
        return {
            "replica_id": self._broker_id,
            "replica_state": {"replica_id": self._broker_id, "replica_epoch": self._broker_epoch},
            "max_wait_ms": config.wait_ms_max,
            "min_bytes": config.bytes_min,
            "max_bytes": config.answer_bytes_max,
            "isolation_level": 0,
            "rack_id": "",
        }

    def _make_form(self, version: int, followed: Followed) -> tuple[Followed, int, Form]:
        fields = NextRequest(MARK, MARK + 1, [followed], []).fields(by_id=version >= BY_ID_FROM)
        ((row,),) = (topic["partitions"] for topic in fields["topics"])
        row.update({name: MARK + number for number, name in enumerate(_POSITION, len(_SESSION))})
        form = Form(FETCH.request.build(version, {**self._fields, **fields}), _CODES)
        if len(self._forms) >= FORMS_MAX:
            self._forms.clear()
        made = self._forms[followed.key] = (followed, version, form)
        return made
