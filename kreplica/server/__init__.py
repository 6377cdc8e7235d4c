"""Clients' requests, from the socket to whoever answers them, and back.

From the outside in:

* ``listeners``: ``Server``: binds the listeners, accepts, stops in order
* ``connections``: all that are open: how many there may be, which are idle
* ``resources``: what listeners and connections of one broker share
* ``transport``: the fast transport, on Twisted's reactor but not on its read and write paths; ``outgoing``: its queue
* ``stock``: the same over Twisted's own transports, for TLS and reactors without descriptors
* ``buffers``: buffers for frames that come in several reads; ``partial_frames``: the bound on their memory
* ``cold_reads``: answers that are on disk only are read away from the reactor first
* ``control_first``: the control plane goes before data
* ``connection``: one client without I/O: requests and answers in order, and its bounds; ``bounds``: their numbers
* ``turn``: answers of one turn of the loop leave together
* ``dispatch``: from a frame to its handler by one table; ``features``: what follows from that table for clients
* ``produce_runs``: Produce requests of one read that are alike are handled together
* ``request``: what a handler sees; ``pieces``: what its answer is made of; ``answers``: what answers have in common
* ``metrics``: counters
* ``handlers``: one file per API
* ``metadata``: what this broker knows of the cluster; ``topic_admin``: changes to topics, written to ZooKeeper
* ``fetch_sessions``: what clients fetch without naming it again (KIP-227)
* ``answer_forms``: answers to Produce that differ in numbers only
* ``acknowledgement``: what was appended and waits for its replicas; ``produced``: what Produce says of it
* ``transactional_produce``: batches of transactions, which may have to wait for a coordinator first
* ``authorization``: who may do what, asked before handlers
* ``interception``: Produce with plugins that look at batches first; ``principals``: who asks
* ``wanted``: one partition of a fetch; ``partition_reads``: what the fetch gets of it

A frame is handled where it lies: nothing is copied, queued or deferred between the socket and a handler.
"""
