"""Several programs in one process, each on its own host that can be killed, paused and isolated separately.

They use real sockets, timers, threads and files.

* ``machine``: ``Machine``, which runs one program at a time: start here
* ``host_reactor``: the reactor of one program; ``loopback``: ports and partitions of the hosts
* ``host_disk``: its files; ``host_offload``: its threads
"""
