"""A ZooKeeper-protocol server inside the process: for one machine, for tests, and for simulation.

What is decided without I/O:

* ``znode`` one znode, its stat, the rules of its path
* ``tree`` all of them: what each operation checks and changes
* ``access`` ACLs and identities
* ``watches`` who watches what, and whom a change concerns
* ``sessions`` who is connected or may come back

What makes it durable:

* ``store`` the interface, and the values that go through it
* ``sqlite_store`` the product's
* ``disk_store`` the simulator's, on the ``Disk`` seam
* ``commits`` group commit: what waits for what

What speaks the protocol:

* ``connection`` frames in, answers out, back-pressure
* ``dispatch`` the table of operations
* ``operations`` decodes changes in place
* ``reads``, ``writes``, ``session_requests`` serve them
* ``words`` the four-letter words
* ``serving`` the parts put together, and what happens by the clock
* ``server`` ``EmbeddedCoordinator``: start and stop
"""
