"""Several programs in one process, each as on a host of its own that can be killed, paused and cut off alone.

Sockets, timers, threads and files are the real ones.

* ``machine``: ``Machine``: one program at a time, built anew at each start: start here
* ``host_reactor``: the reactor of one program, from its start to its end; ``loopback``: which hosts hear each other
* ``host_disk``: its files; ``host_offload``: its threads
"""
