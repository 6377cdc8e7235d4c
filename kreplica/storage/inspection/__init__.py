"""Looking at the files of logs without being their broker: read-only, in bounded memory, also while a broker writes.

* ``files`` which files there are; batches and the entries of indexes, one after the other
* ``verification`` whole directories: start here
* ``segment_checks`` one segment: its batches, and what follows from one to the next
* ``index_checks`` whether what the indexes say is so
"""
