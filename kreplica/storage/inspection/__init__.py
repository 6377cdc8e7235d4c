"""Read-only inspection of log files in bounded memory, with or without a running broker.

* ``files``: lists files, and reads batches and index entries one by one
* ``verification``: checks whole directories; the entry point
* ``segment_checks``: checks the batches of one segment, and their order
* ``index_checks``: checks indexes against the batches
"""
