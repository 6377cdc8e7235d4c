"""Protocol core of both clients: routing, retries, metadata, batches and transactions, without sockets or a reactor.

The coroutines of this package await only what their driver provides.  The Twisted client (``kreplica.client``) runs
them on its reactor; the blocking client (``kreplica.blocking``) provides awaitables that never suspend.

* ``addresses``: bootstrap addresses; ``metadata``: brokers, topics and leaders as immutable values
* ``errors``: the exceptions of both clients, either retriable or final
* ``options``: timeouts and limits; ``backoff``: delays between retries
* ``negotiation``: API versions that both the client and the broker support
* ``produce_requests``: Produce requests, and the effect of the responses on batches
* ``partition_queue``: batches on their way to one partition, and the sequence numbers of an idempotent producer
* ``delivery``: the outcome of one record; ``partitioning``: choice of a record's partition
* ``transaction_requests``, ``transaction_coordinator``: requests from a transactional producer to its coordinators
* ``transactions``: phases of transactions
* ``fetch_requests``: Fetch requests and their responses; ``fetched_batches``: visible records of a response
* ``offsets``: ListOffsets and committed offsets; ``offset_queries``: requests for them
* ``topics``, ``configs``: new topics and configurations, as encoded in requests and responses
* ``admin``: administration of topics, configurations, groups, replicas and transactions
"""
