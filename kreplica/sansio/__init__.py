"""What a Kafka client has to know, without a socket, a clock or a thread: both clients stand on it.

* ``addresses`` where to begin; ``views`` what a cluster looks like, as frozen values, and how an answer becomes them
* ``errors`` what can go wrong, and whether another try makes sense
* ``options`` how brokers are treated; ``backoff`` how long to wait between tries
* ``producing`` Produce requests, and what answers mean to batches; ``transactions`` what a transaction asks
  of its coordinator
* ``lanes`` what is on its way to each partition, and how an idempotent producer numbers it; ``delivery`` what became of
  a record; ``partitioning`` where records without a key go
* ``offsets`` by time, and committed ones, in questions and answers
* ``topics`` that are to be made, and ``configs``, settings, in questions and answers
* ``fetching`` Fetch requests and what their answers say; ``batches`` what of an answer a reader may see
"""
