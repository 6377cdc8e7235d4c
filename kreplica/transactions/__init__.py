"""Transaction coordinator: decides the outcome of a producer's transaction, once for all its partitions.

Data flow: request -> decision (pure) -> log -> memory -> response, and markers to the partitions.

* ``coordinator``: entry point; ``config``: settings
* ``shard``: transactional ids of one partition of ``__transaction_state``, committed and pending
* ``states``: state of a transactional id and valid transitions; ``records``: on-disk format
* ``init_producer_id``, ``add_partitions``, ``end_transaction``: pure decisions; ``decision_result``: their result
* ``fencing``: predicates for fenced producers and repeated requests
* ``delayed_requests``: requests that wait while markers are written
* ``rejected_end_log``: log lines about rejected EndTxn requests
* ``marker_sender``: writes transaction markers; ``marker_requests``: bodies and results of WriteTxnMarkers
* ``timeouts``: aborts long transactions and removes unused transactional ids

On the partition leader's side:

* ``admission``: delays writes until their partitions are verified; ``verification``: requests to the coordinators
"""

from kreplica.transactions.config import TransactionsConfig
from kreplica.transactions.coordinator import TransactionCoordinator
from kreplica.transactions.decision_result import ProducerResponse
from kreplica.transactions.end_transaction import EndRequest
from kreplica.transactions.init_producer_id import InitRequest
from kreplica.transactions.marker_sender import Markers, MarkersConfig
from kreplica.transactions.records import by_topic
from kreplica.transactions.states import NO_TIME, STATES_BY_TITLE, Identity, Transaction

__all__ = [
    "NO_TIME",
    "STATES_BY_TITLE",
    "EndRequest",
    "Identity",
    "InitRequest",
    "Markers",
    "MarkersConfig",
    "ProducerResponse",
    "Transaction",
    "TransactionCoordinator",
    "TransactionsConfig",
    "by_topic",
]
