"""Applications that use the client library, each on its own host, whose results are checked at the end of a storm.

* ``applications``: all applications of a run: start here
* ``application``: base class: a process that works until it is stopped, and releases all resources
* ``writer``: sends numbered records with an idempotent producer
* ``worker``: reads as a group member, is slow at times, and commits
* ``copier``: copies records to another topic in transactions, with one of two versions of the protocol
* ``reader``: reads partitions from the beginning, without a group
* ``settings``: random choices of a seed; ``internal_topics``: the topics of groups and transactions
* ``slots``: places for successive processes; ``logs``: reads logs, committed offsets and groups at the end
* ``history``: sends, reads, assignments and commits of the applications; ``checks``: compares them with the logs
"""
