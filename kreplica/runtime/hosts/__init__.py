"""Several programs in one process, each on its own host that can be killed, paused and isolated separately.

The programs use real sockets, timers, threads and files.

* ``machine``: ``Machine``, which runs one program at a time: start here
* ``host_reactor``: the reactor of one program; ``loopback``: ports of the hosts and network partitions between them
* ``host_disk``: its files; ``host_offload``: its threads
"""
