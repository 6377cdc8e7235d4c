"""Applications that use the client library, each on a host of its own, in a storm: nothing lost, twice, or stuck.

* ``applications`` all of them as a companion of a run: start here
* ``application`` what every one of them is: a process that begins, works, and leaves nothing behind
* ``writer`` sends numbered records by an idempotent producer
* ``worker`` reads as a member of a group, is slow at times, and commits
* ``carrier`` reads, transforms and writes in transactions
* ``follower`` reads everything from the beginning, without a group
* ``circumstances`` what a seed chooses of how they use the library
* ``places`` where they work, one process after the other; ``logs`` what stands in partitions in the end
* ``tellings`` what they were told; ``checks`` whether that is so
"""
