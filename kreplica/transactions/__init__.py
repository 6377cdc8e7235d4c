"""The coordinator of transactions: which of a producer's records count, decided once for all partitions.

Data flows one way: request -> decision (pure) -> log -> memory -> answer, and markers to the partitions.

* ``coordinator`` start here: one broker's; ``config`` its settings
* ``shard`` the transactional ids of one partition of ``__transaction_state``: memory, and what is on its way to the log
* ``states`` what is known of a transactional id, and which state may follow which; ``records`` the same in the log
* ``fencing`` the guards: who may act, and what is asked a second time
* ``decisions`` what comes of a request: ``beginnings`` of producers, ``additions`` of partitions, ``endings``
* ``refused_ends`` the log lines of refused EndTxn requests
* ``markers`` the end of a transaction, written to all its partitions; ``marker_requests`` the requests for that
* ``patience`` who comes while markers are written waits for a moment
* ``timeouts`` what happens by itself: transactions that take too long, transactional ids that nobody uses

The side of partitions' leaders:

* ``admission`` who wants to write in a transaction waits there; ``verification`` asks the coordinators
"""

from kreplica.transactions.config import TransactionsConfig
from kreplica.transactions.coordinator import TransactionCoordinator
from kreplica.transactions.decisions import Answer
from kreplica.transactions.end_transaction import EndRequest
from kreplica.transactions.init_producer_id import InitRequest
from kreplica.transactions.markers import Markers, MarkersConfig
from kreplica.transactions.records import by_topic
from kreplica.transactions.states import NO_TIME, STATES_BY_TITLE, Identity, Transaction

__all__ = [
    "NO_TIME",
    "STATES_BY_TITLE",
    "Answer",
    "EndRequest",
    "Identity",
    "InitRequest",
    "Markers",
    "MarkersConfig",
    "Transaction",
    "TransactionCoordinator",
    "TransactionsConfig",
    "by_topic",
]
