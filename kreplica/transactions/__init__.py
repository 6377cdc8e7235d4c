"""The coordinator of transactions: which of a producer's records count, decided once for all partitions.

Data flows one way: request -> decision (pure) -> log -> memory -> answer, and markers to the partitions.

* ``states`` what is known of a transactional id, and which state may follow which; ``records`` the same in the log
* ``fencing`` the guards: who may act, and what is asked a second time
* ``decisions`` what comes of a request: ``beginnings`` of producers, ``additions`` of partitions, ``endings``
* ``verification`` what leaders of partitions ask of coordinators
"""
