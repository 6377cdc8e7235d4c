"""Simulated ZooKeeper ensemble: servers that apply one log of transactions, each with its own lag.

* ``transactions``: entries of the log
* ``replica``: state of one server: the embedded ZooKeeper server's tree, watches and request handlers
* ``channel``: ordered messages between two servers, with random latency
* ``request``: requests that a server forwards to the leader
* ``term``: the leader: validates and proposes transactions, expires sessions
* ``server``: process of one server: serves reads from its replica and forwards writes
* ``ensemble``: the log, elections, isolated servers
* ``machines``: hosts of the servers, as the ZooKeeper server of a simulated cluster

The agreement protocol is not simulated: the log of committed transactions is one object. A server serves the
transactions that it has applied. An isolated leader cannot commit, but serves reads until it notices the isolation.
"""
