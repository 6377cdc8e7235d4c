"""The log of one partition.

* ``log``: reads, writes, segments and truncation; ``appending``: validates batches and assigns their offsets
* ``last_stable_offset``: the end of ``read_committed`` reads; ``timestamp_search``: offsets by time
* ``retention``: deletes old segments; ``segment_replacement``: replaces compacted segments
"""
