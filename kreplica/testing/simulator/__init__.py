"""Simulated operating system of all hosts, in memory and in virtual time, from one seed.

* ``simulation``: hosts, their clocks and processes: start here
* ``scheduler``: virtual time and the queue of events
* ``reactor``: Twisted's reactor for one process; ``readiness``: reader and writer notifications; ``transports``:
  listening ports and connections
* ``sockets``: the kernel's side of TCP; ``network``: network partitions and listening addresses; ``links``:
  state of the links between hosts
* ``offload``: work in threads
* ``disk`` and ``memory_file``: files in memory; ``content`` and ``namespace``: their state after a power loss
* ``disk_faults``: injected disk errors
"""
